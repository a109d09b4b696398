"""Routes: maps paths to drains, and gives hints for paths that nearly match.

Invariant: one table, built once for the current settings. A trailing slash and the root are aliases, not
    redirects, because exporters treat a redirect as success.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from urllib.parse import unquote, urlsplit

from receiver.errors import NoSuchPath, OperatorError
from receiver.intake.answers import Reply
from receiver.intake.credentials import Credentials
from receiver.metrics import Count
from receiver.model import ContentKind
from receiver.settings import Drain, Limits, Webhook
from receiver.transcode import FastSender

TRACES = "/v1/traces"
"""Path that exporters append to a base URL."""
NEAR_MIN = 0.75
"""Similarity, 0 to 1, from which the path of exporters is suggested for an unknown path."""
NEAR_CHARS_MIN = 5
"""Length of the shortest path that is suggested: one character is too much of a shorter path."""
OTHER_SIGNALS = ("/v1/metrics", "/v1/logs", "/v1development/profiles")
PATH_CHARS_LOGGED_MAX = 200
"""Number of characters of an unknown path that are logged."""
KeepWebhook = Callable[[bytes], Awaitable[None]]
"""Stores the body of a webhook durably, or raises the error that answers it."""
PATHS_LOGGED_MAX = 4
"""Number of configured paths that are logged together with an unknown path."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Drain, path and content kind of a delivery, with values that depend only on these three."""

    drain: Drain
    body_bytes_max: int
    body_bytes: Count
    accepted: Count
    """Deliveries that were answered 200."""
    accepted_reply: Reply
    """The reply to a delivery that was accepted completely and without a warning."""
    collected: dict[tuple[str, ...], FastSender] = field(default_factory=dict, compare=False)
    """What the core collects of its deliveries, by content codings."""


@dataclass(frozen=True, slots=True)
class Route:
    """One path and its drains, distinguished by their credentials, strictest drain first."""

    drains: tuple[Credentials, ...]
    body_bytes_max: int
    """Largest limit of the drains, because the drain may be known only after the body was read."""
    header_line: bytes
    """Header of every answer at this path; may be empty."""
    senders: dict[ContentKind, dict[str, Sender]] = field(
        default_factory=lambda: {kind: {} for kind in ContentKind}, compare=False
    )
    """Cache of the delivery handler, by content kind and name of the drain."""
    keep_webhook: KeepWebhook | None = field(default=None, compare=False)
    """Set for the path of webhooks, which are no deliveries."""


class Routes:
    """All paths of the drain endpoint."""

    def __init__(self, drains: Sequence[Drain], limits: Limits, *, post_root: bool) -> None:
        self._limits = limits
        self.credentials = [Credentials(drain) for drain in drains]
        by_path: dict[str, list[Credentials]] = defaultdict(list)
        for credentials in self.credentials:
            by_path[credentials.drain.path.rstrip("/") or "/"].append(credentials)
        self._configured = tuple(by_path)
        self._route_of: dict[str, Route] = {}
        for path, at_path in by_path.items():
            self._route_of[path] = self._route_of[f"{path.rstrip('/')}/"] = self._route(at_path)
        if post_root:
            # A drain that is configured at the root takes precedence.
            self._route_of.setdefault("/", self._route_of[self._configured[0]])

    def add_webhooks(self, settings: Webhook, keep_webhook: KeepWebhook) -> None:
        """Add the path of webhooks. The settings are checked: no drain has this path."""
        # Their signature is checked as that of a drain. Without a name, so that no metric counts it as one.
        signer = Drain(
            name="",
            path=settings.path,
            signature_header=settings.signature_header,
            signature_secrets=settings.secrets,
        )
        route = Route((Credentials(signer),), settings.body_bytes_max, b"", keep_webhook=keep_webhook)
        path = settings.path.rstrip("/")
        self._route_of[path] = self._route_of[f"{path}/"] = route
        self._configured = (*self._configured, path)

    def _route(self, at_path: Sequence[Credentials]) -> Route:
        # Otherwise a drain that requires less would take the deliveries of a stricter drain.
        ordered = sorted(at_path, key=lambda credentials: credentials.strength, reverse=True)
        largest = max(self.body_bytes_max(credentials.drain) for credentials in at_path)
        lines = (
            _verify_line(credentials.drain) for credentials in ordered if credentials.drain.verify_header
        )
        return Route(tuple(ordered), largest, next(lines, b""))

    def body_bytes_max(self, drain: Drain) -> int:
        """Return the body size limit of one drain."""
        return self._limits.body_bytes_max if drain.body_bytes_max is None else drain.body_bytes_max

    def find(self, target: str) -> Route:
        """Return the route of a request target. Raises `NoSuchPath` with a hint."""
        path = target.partition("?")[0]
        route = self._route_of.get(path)
        # A proxy may send the absolute form `POST http://host/path`.
        if route is None and not path.startswith("/"):
            path = _path_of_absolute(target)
            route = self._route_of.get(path)
        if route is None:
            raise NoSuchPath(self._hint(path), log_fields=self._log_fields(path))
        return route

    def _hint(self, path: str) -> str:
        """Return a hint about the path that the sender probably meant.

        The hint names a configured path only if the requested path nearly matches it: other senders need not
        know the configured paths.
        """
        # For hints only: requests are never routed by a normalized path.
        meant = _normal(path)
        if meant.endswith(OTHER_SIGNALS):
            return f"this receiver accepts only traces; expected {self._default_or_any()}"
        for configured in self._configured:
            if _normal(configured) == meant:
                return f"no drain has exactly this path; expected '{configured}'"
        for configured in self._configured:
            if meant == _normal(f"{configured}{TRACES}"):
                return (
                    f"the sender appended '{TRACES}' to a URL that already has its path; expected "
                    f"'{configured}': set the URL without it, or in OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
                )
        if meant == "/":
            return f"the URL has no path; expected {self._default_or_any()}"
        near = next(
            (configured for configured in self._configured if _is_near(meant, _normal(configured))), ""
        )
        if near:
            return f"no drain at this path; did you mean '{near}'?"
        return "no drain at this path; expected the path of a configured drain"

    def _default_or_any(self) -> str:
        return f"'{TRACES}'" if TRACES in self._configured else "the path of a configured drain"

    def _log_fields(self, path: str) -> dict[str, str]:
        """Return the requested path, without its query, and the configured paths."""
        # The path is the sender's text, so its length in the log is limited.
        shown = path if len(path) <= PATH_CHARS_LOGGED_MAX else f"{path[:PATH_CHARS_LOGGED_MAX]}…"
        more = len(self._configured) - PATHS_LOGGED_MAX
        configured = ", ".join(f"'{path}'" for path in self._configured[:PATHS_LOGGED_MAX])
        return {"path": shown, "configured": f"{configured} and {more} more" if more > 0 else configured}


def _path_of_absolute(target: str) -> str:
    """Return the path of an absolute-form request target, as proxies send it."""
    try:
        return urlsplit(target).path or "/"
    except ValueError:
        return ""


def _normal(path: str) -> str:
    """Normalize common misspellings of a path: case, double slashes, dots, escapes, a fragment."""
    steps = unquote(path).partition("#")[0].lower().split("/")
    return "/" + "/".join(step for step in steps if step not in {"", "."})


def _is_near(path: str, configured: str) -> bool:
    """Return whether a path is similar to that of exporters, or differs in one character from another."""
    # The path of exporters is public. Another path may be secret.
    if configured == TRACES:
        return bool(get_close_matches(path[:PATH_CHARS_LOGGED_MAX], (TRACES,), cutoff=NEAR_MIN))
    longest, shortest = max(len(path), len(configured)), min(len(path), len(configured))
    if longest - shortest > 1 or shortest < NEAR_CHARS_MIN:
        return False
    blocks = SequenceMatcher(None, path, configured, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) >= longest - 1


def _verify_line(drain: Drain) -> bytes:
    """Return the header that proves to a platform that this endpoint belongs to the drain's owner."""
    value = drain.verify_header
    # A line break would add headers of its own.
    if not (value.isascii() and value.isprintable()):
        raise OperatorError(
            f"drain '{drain.name}': verify_header is not printable ASCII; expected a header value"
        )
    return f"{drain.verify_header_name}: {value}\r\n".encode()
