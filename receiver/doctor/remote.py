"""Checks of a drain at its public URL: sends a sample as the platform would, and follows it to its row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from receiver.doctor.probe import Answer, NoAnswer, Target, shown_location
from receiver.doctor.sample import PROJECT, Sample, Sender, sender_of
from receiver.doctor.step import Broken, Check, Doubtful, Step, run
from receiver.errors import OperatorError
from receiver.intake.answers import MEDIA_TYPE_OF
from receiver.logs import harmless_text
from receiver.model import ContentKind
from receiver.refusals import REMEDIES
from receiver.settings import MIB, Drain, Settings
from receiver.sizes import size_text

PROBE_TEXT = b"trace-drain-receiver"
"""Beginning of the answer of a drain endpoint to a GET."""
CLOCK_S_MAX = 120.0
LARGE_BYTES = 4 * MIB
STORED_S = 30.0
REFUSAL_S = 4.0
"""Time until the API shows a refusal: a report of the intake, and one of the supervisor."""
POLL_S = 0.25
EMPTY = b'{"resourceSpans":[]}'


class Receiver(Protocol):
    """The API of the receiver that the URL leads to. Each method raises `OperatorError` without an answer."""

    def spans(self, trace_id: str) -> list[dict[str, Any]]:
        """Return the stored spans of a trace."""

    def refusals(self) -> list[dict[str, Any]]:
        """Return the newest refusals."""

    def health(self) -> dict[str, str]:
        """Return the problem of each check; empty if it passes."""


@dataclass
class Doctor:
    """A run against one URL."""

    settings: Settings
    drain: Drain
    sender: Sender
    target: Target
    sample: Sample
    receiver: Receiver | None
    """`None`: no receiver runs on this machine with these settings."""
    row: dict[str, Any] | None = None
    sent_at_s: float = 0.0
    """When the latest request was sent."""

    def steps(self) -> Iterator[Step]:
        """Yield each step."""
        tls: list[Check] = [("tls", self.target.handshake)] if self.target.is_tls else []
        return run(
            [
                ("url", self._url),
                ("dns", self.target.resolve),
                ("tcp", self.target.connect),
                *tls,
                ("endpoint", self._endpoint),
                ("credentials", self._credentials),
                ("json", lambda: self._send(ContentKind.JSON)),
                ("protobuf", lambda: self._send(ContentKind.PROTOBUF)),
                ("body size", self._large),
                *self._readable_steps(),
            ]
        )

    def _readable_steps(self) -> list[Check]:
        if self.receiver is None:
            return [("readable", _unknown)]
        receiver = self.receiver
        return [
            ("readable", lambda: self._readable(receiver)),
            ("project", lambda: self._resolved("project", "ProjectId")),
            ("deployment", lambda: self._resolved("deployment", "DeploymentId")),
        ]

    def _url(self) -> str:
        if not self.target.is_tls:
            is_local = self.target.host in {"localhost", "127.0.0.1", "::1"}
            broken = Doubtful if is_local else Broken
            raise broken(
                "the URL is not https; platforms send to https only",
                "Use the https URL that senders use.",
            )
        return f"drain '{self.drain.name}'"

    def _endpoint(self) -> str:
        """Check with a GET, which needs no credentials, that the receiver answers at this path."""
        answer = self._request("GET")
        self._require_receiver(answer, "GET")
        if answer.status == 404:  # noqa: PLR2004 - Not Found
            seen = self._refusal(404).get("path", "")
            if seen and seen != self.target.path.partition("?")[0]:
                raise Broken(
                    f"a proxy rewrites the path: '{harmless_text(seen)}' arrives at the receiver",
                    "Let the proxy pass the path unchanged.",
                )
            raise Broken(
                "no drain has the path of this URL",
                f"Use the path of drain '{self.drain.name}': {self.drain.path}",
            )
        if answer.status != 200 or not answer.body.startswith(PROBE_TEXT):  # noqa: PLR2004 - OK
            raise _foreign(answer, "GET")
        name = self.drain.verify_header_name.lower()
        if self.drain.verify_header and answer.headers.get(name) != self.drain.verify_header:
            raise Broken(
                f"the answer lacks the header '{name}' with the value of verify_header",
                "Reload the receiver (SIGHUP), and let the proxy pass the headers of answers.",
            )
        return self._clock(answer)

    def _clock(self, answer: Answer) -> str:
        try:
            at_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        except ValueError:
            return "the receiver answers; its clock is not known, because the answer has no date"
        if abs(ahead_s := at_s - time.time()) > CLOCK_S_MAX:
            raise Broken(
                f"the clock of the receiver or proxy differs from this machine's by {ahead_s:+.0f} s",
                "Synchronise the clocks (NTP): spans get wrong times, and certificates fail.",
            )
        return "the receiver answers at this path, and its clock is right"

    def _credentials(self) -> str:
        """Send an empty POST, with which platforms test credentials: nothing is stored."""
        answer = self._request("POST")
        self._require_receiver(answer, "POST")
        if answer.status in {401, 403}:
            raise self._credentials_broken(answer.status)
        self._require_accepted(answer)
        parts = [*(["token"] if self.sender.token else []), *(["signature"] if self.sender.secret else [])]
        return f"accepted: {' and '.join(parts)}" if parts else "the drain requires none"

    def _credentials_broken(self, status: int) -> Broken:
        """Return why credentials are refused: the sender has others, or a proxy changes them."""
        if broken := _sender_broken(self.settings, self.drain, self.sender):
            return broken
        error = str(self._refusal(status).get("error", ""))
        for part, cause in _CAUSES.items():
            if part in error:
                header = self.drain.signature_header if "signature" in part else self.drain.header
                return Broken(cause.format(header), "Let the proxy pass this header unchanged.")
        return Broken(
            f"the receiver refuses the credentials of drain '{self.drain.name}' with {status}"
            + (f": {harmless_text(error)}" if error else ""),
            "Reload the receiver (SIGHUP): it may run with older settings. Otherwise a proxy changes a "
            "header.",
        )

    def _send(self, kind: ContentKind) -> str:
        body = self.sample.body(kind)
        answer = self._request("POST", body, MEDIA_TYPE_OF[kind])
        self._require_receiver(answer, "POST")
        # The same credentials were accepted without a body.
        if answer.status in {401, 403}:
            raise Broken(
                "the body does not arrive as it was sent, so its signature does not match: a proxy encodes, "
                "compresses or truncates it",
                "Let the proxy pass the body unchanged.",
            )
        if answer.status == 415:  # noqa: PLR2004 - Unsupported Media Type
            raise Broken(
                "the content type or encoding does not arrive as it was sent: a proxy changes it",
                "Let the proxy pass Content-Type and Content-Encoding unchanged.",
            )
        if answer.status == 400:  # noqa: PLR2004 - Bad Request
            raise Broken(
                "the body does not arrive as it was sent: the receiver cannot decode it",
                "Let the proxy pass the body unchanged.",
            )
        self._require_accepted(answer)
        if answer.content_type != MEDIA_TYPE_OF[kind]:
            raise _foreign(answer, "POST")
        return f"answered 200, {size_text(len(body))} sent"

    def _large(self) -> str:
        """Send a large body without a span, which a limit of a proxy would refuse."""
        size = min(self.drain.body_bytes_max or self.settings.limits.body_bytes_max, LARGE_BYTES)
        answer = self._request("POST", EMPTY.ljust(size), MEDIA_TYPE_OF[ContentKind.JSON])
        if answer.status == 413:  # noqa: PLR2004 - Content Too Large
            who = "the receiver" if _is_receivers(answer) else "a proxy"
            fix = (
                "body_bytes_max of the drain" if _is_receivers(answer) else "its limit (client_max_body_size)"
            )
            raise Broken(f"{who} refuses bodies of {size_text(size)}", f"Raise {fix}.")
        self._require_receiver(answer, "POST")
        if answer.status in {401, 403}:
            raise Broken("a proxy changes large bodies", "Let the proxy pass the body unchanged.")
        self._require_accepted(answer)
        return f"bodies of {size_text(size)} arrive"

    def _readable(self, receiver: Receiver) -> str:
        deadline_s, problem = time.monotonic() + STORED_S, ""
        while time.monotonic() < deadline_s:
            try:
                rows = receiver.spans(self.sample.trace_id)
            except OperatorError as error:
                rows, problem = [], str(error)
            if len(rows) >= len((ContentKind.JSON, ContentKind.PROTOBUF)):
                self.row = rows[0]
                return "both samples are stored and can be read"
            if trouble := self._store_trouble(receiver):
                raise Broken(
                    f"the samples are in the journal; the store does not accept them: {trouble}",
                    "Check the ClickHouse server and store.url with `trace-drain doctor` without a URL.",
                )
            time.sleep(POLL_S)
        raise Broken(
            f"the samples cannot be read after {STORED_S:.0f} s: {problem or 'they are not stored'}",
            "The URL may lead to another receiver. Otherwise see dead letters on the page Receiver.",
        )

    def _store_trouble(self, receiver: Receiver) -> str:
        try:
            checks = receiver.health()
        except OperatorError:
            return ""
        return harmless_text(checks.get("store", "") or checks.get("writer", ""))

    def _resolved(self, name: str, column: str) -> str:
        value = str((self.row or {}).get(column, ""))
        if not value:
            raise Broken(
                f"the receiver finds no {name} in the samples, though [resolve] of these settings names it",
                "Reload the receiver (SIGHUP): it may run with older settings.",
            )
        if name == "project" and value != PROJECT:
            raise Broken("the samples got another project", "Check the order of keys in [resolve].")
        return value

    def _request(self, method: str, body: bytes = b"", content_type: str = "") -> Answer:
        headers = {"User-Agent": "trace-drain-doctor"}
        if method == "POST":
            headers |= self.sender.headers(body)
        if content_type:
            headers["Content-Type"] = content_type
        self.sent_at_s = time.time()
        try:
            return self.target.request(method, headers, body)
        except NoAnswer as error:
            raise Broken(
                f"a {method} of {size_text(len(body))} is not answered: {error}",
                "Look at the log of the proxy: it may buffer the body, or not reach the receiver.",
            ) from error

    def _require_receiver(self, answer: Answer, method: str) -> None:
        """Raise `Broken` if something else than the receiver answered."""
        if not (_is_receivers(answer) or answer.body.startswith(PROBE_TEXT)):
            raise _foreign(answer, method)

    def _require_accepted(self, answer: Answer) -> None:
        if answer.status == 200:  # noqa: PLR2004 - OK
            return
        refusal = self._refusal(answer.status)
        error = harmless_text(str(refusal.get("error", "")))
        raise Broken(
            f"the receiver answers {answer.status}{': ' if error else ''}{error}",
            str(refusal.get("remedy", "")) or REMEDIES["overloaded"],
        )

    def _refusal(self, status: int) -> dict[str, Any]:
        """Return what the receiver noted about the latest request, which it answered with this status."""
        deadline_s = time.monotonic() + REFUSAL_S
        while self.receiver is not None and time.monotonic() < deadline_s:
            try:
                newest = self.receiver.refusals()
            except OperatorError:
                break
            for refusal in newest:
                if refusal["status"] == status and refusal["last_s"] >= self.sent_at_s:
                    return refusal
            time.sleep(POLL_S)
        return {}


_CAUSES = {
    "is repeated": "the header '{}' arrives twice: a proxy adds its own",
    "token is missing": "the header '{}' does not arrive: a proxy removes it",
    "token has": "the header '{}' arrives with another value: a proxy changes it",
    "signature is missing": "the header '{}' does not arrive: a proxy removes or renames it",
    "is not an HMAC": "the header '{}' arrives with another value: a proxy changes it",
}
"""Part of the error that the receiver notes → cause, if the sender is configured as the receiver expects."""


def _unknown() -> str:
    raise Doubtful(
        "not checked: no receiver runs here on the data directory of these settings",
        "Run this command on the machine of the receiver, with its --config.",
    )


def _is_receivers(answer: Answer) -> bool:
    """Return whether the receiver itself can have sent an answer."""
    if answer.content_type == MEDIA_TYPE_OF[ContentKind.PROTOBUF]:
        return True
    return answer.content_type == MEDIA_TYPE_OF[ContentKind.JSON] and answer.body[:1] == b"{"


def _foreign(answer: Answer, method: str) -> Broken:
    """Return the cause if something else than the receiver answered."""
    status = answer.status
    if 300 <= status < 400:  # noqa: PLR2004 - redirects
        return Broken(
            f"the URL redirects to {shown_location(answer)}; senders do not follow redirects",
            "Use the URL of the redirect's target, or let the proxy pass the request.",
        )
    if status in {502, 503, 504}:
        return Broken(
            f"a proxy answers {status}: it does not reach the receiver",
            "Start the receiver, or correct its address in the proxy.",
        )
    if status == 405:  # noqa: PLR2004 - Method Not Allowed
        return Broken(f"a proxy does not allow {method}", "Allow GET and POST for this path.")
    if status == 413:  # noqa: PLR2004 - Content Too Large
        return Broken("a proxy limits the size of bodies", "Raise its limit (client_max_body_size).")
    if status in {401, 403}:
        return Broken(
            f"a proxy answers {status} in the receiver's place",
            "Exempt this path from the proxy's login or firewall.",
        )
    what = "a page in HTML" if answer.content_type == "text/html" else f"status {status}"
    return Broken(
        f"another server answers in the receiver's place: {what}",
        "Let the proxy pass requests of this path to the receiver.",
    )


def _sender_broken(settings: Settings, drain: Drain, sender: Sender) -> Broken | None:
    """Return how the sender differs from the settings of the drain; `None` if it does not."""
    if drain.tokens and sender.token not in drain.tokens:
        owner = next((other.name for other in settings.drain if sender.token in other.tokens), "")
        whose = f"that of drain '{owner}'" if owner else "not one of this drain"
        return Broken(f"the sender's token is {whose}", f"Give the sender the token of '{drain.name}'.")
    if not drain.signature_secrets:
        return None
    if sender.signature_header.lower() != drain.signature_header.lower():
        return Broken(
            "the sender signs in another header than the drain expects",
            f"Set signature_header of drain '{drain.name}' to '{harmless_text(sender.signature_header)}'.",
        )
    if sender.algorithm != drain.signature_algorithm:
        return Broken(
            f"the sender signs with HMAC-{sender.algorithm}, "
            f"the drain expects HMAC-{drain.signature_algorithm}",
            f"Set signature_algorithm of drain '{drain.name}' to '{sender.algorithm}'.",
        )
    if sender.secret not in drain.signature_secrets:
        return Broken(
            "the sender signs with a secret that is not one of this drain, such as an old one",
            "Give the sender the drain's secret, or list both in signature_secret_files.",
        )
    return None


def drain_of(settings: Settings, name: str | None, path: str) -> Drain:
    """Return the drain with this name; without a name that of the path, else the first."""
    drains = {drain.name: drain for drain in settings.drain}
    if name is not None and name not in drains:
        raise OperatorError(f"--drain: no drain has this name; expected {', '.join(drains)}")
    at_path = (
        drain for drain in settings.drain if drain.path.rstrip("/") == path.partition("?")[0].rstrip("/")
    )
    return drains[name] if name is not None else next(at_path, settings.drain[0])


def sender_with(drain: Drain, **given: str | None) -> Sender:
    """Return the sender of a drain, with the values that are given."""
    return replace(sender_of(drain), **{name: value for name, value in given.items() if value is not None})
