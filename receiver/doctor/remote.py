"""Checks of a drain at its public URL: sends a sample as the platform would, and follows it to its row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from receiver.doctor.probe import EndpointAnswer, Target, shown_location
from receiver.doctor.sample import PROJECT, SampleTrace, Sender
from receiver.doctor.step import Check, Step, StepFailed, StepWarning, run
from receiver.errors import OperatorError
from receiver.intake.answers import MEDIA_TYPE_OF
from receiver.model import ContentKind
from receiver.printable import harmless_text
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
KINDS = 2
"""Number of samples: one as JSON, one as protobuf."""
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
    settings: Settings
    drain: Drain
    sender: Sender
    target: Target
    sample: SampleTrace
    receiver: Receiver | None
    """`None`: no receiver runs on this machine with these settings."""
    row: dict[str, Any] | None = None
    sent_at_s: float = 0.0
    """When the latest request was sent."""

    def steps(self) -> Iterator[Step]:
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
            failure = StepWarning if is_local else StepFailed
            raise failure(
                "the URL is not https; platforms send to https only", "Use the https URL that senders use."
            )
        return f"drain '{self.drain.name}'"

    def _endpoint(self) -> str:
        """Check with a GET, which needs no credentials, that the receiver answers at this path."""
        answer = self._answer("GET")
        if answer.status == 404:  # noqa: PLR2004 - Not Found
            seen = self._refusal(404).get("path", "")
            if seen and seen != self.target.path.partition("?")[0]:
                raise StepFailed(
                    f"a proxy rewrites the path: '{harmless_text(seen)}' arrives at the receiver",
                    "Let the proxy pass the path unchanged.",
                )
            raise StepFailed(
                "no drain has the path of this URL",
                f"Use the path of drain '{self.drain.name}': {self.drain.path}",
            )
        if answer.status != 200 or not answer.body.startswith(PROBE_TEXT):  # noqa: PLR2004 - OK
            raise _foreign(answer, "GET")
        name = self.drain.verify_header_name.lower()
        if self.drain.verify_header and answer.headers.get(name) != self.drain.verify_header:
            raise StepFailed(
                f"the answer lacks the header '{name}' with the value of verify_header",
                "Reload the receiver (SIGHUP), and let the proxy pass the headers of answers.",
            )
        return self._clock(answer)

    def _clock(self, answer: EndpointAnswer) -> str:
        with suppress(ValueError, OverflowError):
            ahead_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp() - time.time()
            if abs(ahead_s) > CLOCK_S_MAX:
                raise StepFailed(
                    f"the clock of the receiver or proxy differs from this machine's by {ahead_s:+.0f} s",
                    "Synchronise the clocks (NTP): spans get wrong times, and certificates fail.",
                )
        return "the receiver answers at this path, and its clock is right"

    def _credentials(self) -> str:
        """Send an empty POST, with which platforms test credentials: nothing is stored."""
        answer = self._answer("POST")
        if answer.status in {401, 403}:
            raise self._credentials_failure(answer.status)
        self._require_accepted(answer)
        parts = [*(["token"] if self.sender.token else []), *(["signature"] if self.sender.secret else [])]
        return f"accepted: {' and '.join(parts)}" if parts else "the drain requires none"

    def _credentials_failure(self, status: int) -> StepFailed:
        """Return why credentials are refused: the sender has others, or a proxy changes them."""
        if failure := _sender_failure(self.settings, self.drain, self.sender):
            return failure
        error = str(self._refusal(status).get("error", ""))
        for part, cause in _CAUSES.items():
            if part in error:
                header = self.drain.signature_header if "signature" in part else self.drain.header
                return StepFailed(cause.format(header), "Let the proxy pass this header unchanged.")
        return StepFailed(
            f"the receiver refuses the credentials of drain '{self.drain.name}' with {status}"
            + (f": {harmless_text(error)}" if error else ""),
            "Reload the receiver (SIGHUP): it may run with older settings. Otherwise a proxy changes a "
            "header.",
        )

    def _send(self, kind: ContentKind) -> str:
        body = self.sample.body(kind)
        answer = self._answer("POST", body, MEDIA_TYPE_OF[kind])
        # The same credentials were accepted without a body.
        if answer.status in _CHANGED:
            raise StepFailed(f"{_CHANGED[answer.status]}: a proxy changes it", UNCHANGED)
        self._require_accepted(answer)
        if answer.content_type != MEDIA_TYPE_OF[kind]:
            raise _foreign(answer, "POST")
        return f"answered 200, {size_text(len(body))} sent"

    def _large(self) -> str:
        """Send a large body without a span, which a limit of a proxy would refuse."""
        size = min(self.drain.body_bytes_max or self.settings.limits.body_bytes_max, LARGE_BYTES)
        answer = self._answer("POST", EMPTY.ljust(size), MEDIA_TYPE_OF[ContentKind.JSON])
        if answer.status in {401, 403}:
            raise StepFailed("a large body does not arrive as it was sent: a proxy changes it", UNCHANGED)
        self._require_accepted(answer)
        return f"bodies of {size_text(size)} arrive"

    def _readable(self, receiver: Receiver) -> str:
        deadline_s, problem = time.monotonic() + STORED_S, "they are not stored"
        while time.monotonic() < deadline_s:
            trouble = ""
            try:
                rows, trouble = receiver.spans(self.sample.trace_id), receiver.health().get("store", "")
                if len(rows) >= KINDS:
                    self.row = rows[0]
                    return "both samples are stored and can be read"
            except OperatorError as error:
                problem = str(error)
                with suppress(OperatorError):
                    trouble = receiver.health().get("store", "")
            if trouble:
                raise StepFailed(
                    f"the samples are in the journal; the store does not accept them: {trouble}",
                    "Check store.url and the server with `trace-drain doctor` without a URL.",
                )
            time.sleep(POLL_S)
        raise StepFailed(
            f"the samples cannot be read after {STORED_S:.0f} s: {problem}",
            "The URL may lead to another receiver. Otherwise see dead letters on the page Receiver.",
        )

    def _resolved(self, name: str, column: str) -> str:
        value = str((self.row or {}).get(column, ""))
        if not value:
            raise StepFailed(
                f"the receiver finds no {name} in the samples, though [resolve] of these settings names it",
                "Reload the receiver (SIGHUP): it may run with older settings.",
            )
        if name == "project" and value != PROJECT:
            raise StepFailed("the samples got another project", "Check the order of keys in [resolve].")
        return value

    def _answer(self, method: str, body: bytes = b"", content_type: str = "") -> EndpointAnswer:
        """Return the receiver's answer to a request. Raises `StepFailed` if something else answers."""
        headers = {"User-Agent": "trace-drain-doctor"}
        if method == "POST":
            headers |= self.sender.headers(body)
        headers |= {"Content-Type": content_type} if content_type else {}
        self.sent_at_s = time.time()
        answer = self.target.request(method, headers, body)
        if answer.content_type not in MEDIA_TYPE_OF.values() and not answer.body.startswith(PROBE_TEXT):
            raise _foreign(answer, method)
        return answer

    def _require_accepted(self, answer: EndpointAnswer) -> None:
        if answer.status == 200:  # noqa: PLR2004 - OK
            return
        refusal = self._refusal(answer.status)
        error = harmless_text(str(refusal.get("error", "")))
        raise StepFailed(
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


UNCHANGED = "Let the proxy pass bodies, Content-Type and Content-Encoding unchanged."
_CHANGED = {
    400: "the body does not arrive as it was sent, so it cannot be decoded",
    **dict.fromkeys((401, 403), "the body does not arrive as it was sent, so its signature does not match"),
    415: "the content type or encoding does not arrive as it was sent",
}
"""Status of the answer to a sample → what a proxy changed."""
_LOGIN = ("its login or firewall takes the request", "Exempt this path from it.")
_DOWN = ("it does not reach the receiver", "Start the receiver, or correct its address in the proxy.")
_FOREIGN = {
    **dict.fromkeys((401, 403), _LOGIN),
    405: ("the method is not allowed", "Allow GET and POST for this path."),
    413: ("the body is over its limit", "Raise its limit (client_max_body_size)."),
    **dict.fromkeys((502, 503, 504), _DOWN),
}
"""Status of an answer that is not the receiver's → cause and fix."""
_CAUSES = {
    "is repeated": "the header '{}' arrives twice: a proxy adds its own",
    "token is missing": "the header '{}' does not arrive: a proxy removes it",
    "token has": "the header '{}' arrives with another value: a proxy changes it",
    "signature is missing": "the header '{}' does not arrive: a proxy removes or renames it",
    "is not an HMAC": "the header '{}' arrives with another value: a proxy changes it",
}
"""Part of the error that the receiver notes → cause, if the sender is configured as the receiver expects."""


def _unknown() -> str:
    raise StepWarning(
        "not checked: no receiver runs here on the data directory of these settings",
        "Run this command on the machine of the receiver, with its --config.",
    )


def _foreign(answer: EndpointAnswer, method: str) -> StepFailed:
    """Return the cause if something else than the receiver answered."""
    if 300 <= answer.status < 400:  # noqa: PLR2004 - redirects
        where = shown_location(answer)
        return StepFailed(
            f"the URL redirects to {where}; senders do not follow redirects", "Use the URL of its target."
        )
    if answer.status in _FOREIGN:
        cause, fix = _FOREIGN[answer.status]
        return StepFailed(f"a proxy answers {answer.status} to a {method}: {cause}", fix)
    what = "a page in HTML" if answer.content_type == "text/html" else f"status {answer.status}"
    return StepFailed(
        f"another server answers in the receiver's place: {what}",
        "Let the proxy pass requests of this path to the receiver.",
    )


def _sender_failure(settings: Settings, drain: Drain, sender: Sender) -> StepFailed | None:
    """Return how the sender differs from the settings of the drain; `None` if it does not."""
    if drain.tokens and sender.token not in drain.tokens:
        owner = next((other.name for other in settings.drain if sender.token in other.tokens), "")
        whose = f"that of drain '{owner}'" if owner else "not one of this drain"
        return StepFailed(f"the sender's token is {whose}", f"Give the sender the token of '{drain.name}'.")
    if not drain.signature_secrets:
        return None
    if sender.signature_header.lower() != drain.signature_header.lower():
        return StepFailed(
            "the sender signs in another header than the drain expects",
            f"Set signature_header of drain '{drain.name}' to '{harmless_text(sender.signature_header)}'.",
        )
    if sender.algorithm != drain.signature_algorithm:
        return StepFailed(
            f"the sender signs with HMAC-{sender.algorithm}, "
            f"the drain expects HMAC-{drain.signature_algorithm}",
            f"Set signature_algorithm of drain '{drain.name}' to '{sender.algorithm}'.",
        )
    if sender.secret not in drain.signature_secrets:
        return StepFailed(
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
