"""Who may deliver: tokens before the body is read, signatures once it is.

Keeps: every secret of every drain in question is compared, in constant time, whether or not one matched
already. 401: no credentials, unknown ones, or not all. 403: known ones for elsewhere, or a wrong signature.
Never: a secret in a message, a comparison of `str` (it raises on non-ASCII), a byte of the body read for a
sender whose token is wrong.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from receiver.errors import NotAllowed, Unauthenticated
from receiver.settings import Drain

HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
SIGNATURE_ALGORITHMS = ("sha1", "sha256")
DRAINS_LOGGED_MAX = 4
"""Drains of one path that a log line about missing credentials names."""


def _raw(value: str) -> bytes:
    """Give a header's bytes back as they were on the wire."""
    return value.encode("utf-8", "surrogateescape")


class Credentials:
    """What one drain asks for."""

    def __init__(self, drain: Drain) -> None:
        self.drain = drain
        self.signed = bool(drain.signature_secrets)
        self._header = drain.header
        self._is_bearer = drain.header.lower() == "authorization"
        self._token_digests = [hashlib.sha256(token.encode()).digest() for token in drain.tokens]
        self._secrets = [secret.encode() for secret in drain.signature_secrets]
        self._algorithm = drain.signature_algorithm

    @property
    def strength(self) -> int:
        """Of two drains at one path that admit a sender, the one that asks for more is meant."""
        return 2 * bool(self._token_digests) + self.signed

    def admit(self, headers: Mapping[str, str]) -> bool:
        """Tell whether the head of a request carries what this drain asks for."""
        signature_is_there = not self.signed or self.drain.signature_header in headers
        return self.know_token(headers) & signature_is_there

    def know_token(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a token of this drain is presented, or none is asked for."""
        digest = hashlib.sha256(_raw(self._presented(headers))).digest()
        found = not self._token_digests
        for known in self._token_digests:
            found |= hmac.compare_digest(digest, known)
        return found

    @property
    def has_tokens(self) -> bool:
        """Tell whether this drain asks for a token at all."""
        return bool(self._token_digests)

    def _presented(self, headers: Mapping[str, str]) -> str:
        value = headers.get(self._header, "").strip()
        if not self._is_bearer:
            return value
        scheme, _, token = value.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def verify(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Tell whether the body, as it came off the wire, is signed with a secret of this drain."""
        presented = _signature(headers.get(self.drain.signature_header, ""), self._algorithm)
        found = False
        for secret in self._secrets:
            found |= hmac.compare_digest(presented, hmac.digest(secret, body, self._algorithm))
        return found

    def why_not_admitted(self, headers: Mapping[str, str]) -> str:
        """Return which credentials are missing or wrong, for the log. It never holds what was sent."""
        problems = [] if self.know_token(headers) else [self._token_problem(headers)]
        if self.signed and self.drain.signature_header not in headers:
            problems.append(
                f"signature is missing; expected it in the header '{self.drain.signature_header}'"
            )
        return " and ".join(problems)

    def _token_problem(self, headers: Mapping[str, str]) -> str:
        expected = "'Bearer TOKEN'" if self._is_bearer else "the bare token"
        where = f"expected {expected} in the header '{self._header}'"
        value = headers.get(self._header, "").strip()
        if not value:
            return f"token is missing; {where}"
        if self._is_bearer and value.partition(" ")[0].lower() != "bearer":
            return f"token has no scheme 'Bearer'; {where}"
        if not self._presented(headers):
            return f"token is missing behind its scheme; {where}"
        if not self._is_bearer and value.partition(" ")[0].lower() == "bearer":
            return f"token has a scheme; {where}"
        return f"token is unknown; {where}"

    def why_not_verified(self, headers: Mapping[str, str]) -> str:
        """Return what is wrong with the signature of a body, for the log."""
        name, algorithm = self.drain.signature_header, self._algorithm
        value = headers.get(name, "")
        if _signature(value, algorithm):
            return f"signature in the header '{name}' matches the body with none of the drain's secrets"
        digits = 2 * hashlib.new(algorithm).digest_size
        others = [one for one in SIGNATURE_ALGORITHMS if one != algorithm and _signature(value, one)]
        found = f"is one of HMAC-{others[0]}" if others else f"is no HMAC-{algorithm}"
        return f"signature in the header '{name}' {found}; expected {digits} hex digits of HMAC-{algorithm}"


def _signature(header: str, algorithm: str) -> bytes:
    """Read a signature in hex, with or without the name of its algorithm; empty if it is not one."""
    value = header.strip()
    if value[: len(algorithm) + 1].lower() == f"{algorithm}=":
        value = value[len(algorithm) + 1 :]
    is_hex = len(value) == 2 * hashlib.new(algorithm).digest_size and HEX_DIGITS.issuperset(value)
    return bytes.fromhex(value) if is_hex else b""


def authorise(
    here: Sequence[Credentials], everywhere: Sequence[Credentials], headers: Mapping[str, str]
) -> list[Credentials]:
    """Find the drains at this path that the head of a request may be from."""
    admitted = [credentials for credentials in here if credentials.admit(headers)]
    if admitted:
        return admitted
    known = [one for one in everywhere if one.has_tokens and one.know_token(headers)]
    why = _by_drain(here, [one.why_not_admitted(headers) for one in here])
    elsewhere = next((one.drain.name for one in known if one not in here), None)
    if elsewhere is not None:
        raise NotAllowed(
            "known credentials, but no drain at this path takes them as they are; "
            "expected its token, and a signature where it asks for one",
            log_fields={"error": f"token is known for drain '{elsewhere}' at another path; here: {why}"},
        )
    raise Unauthenticated(
        "no credentials, unknown ones, or not all; expected those of a drain at this path",
        log_fields={"error": why},
    )


def verify(admitted: Sequence[Credentials], headers: Mapping[str, str], body: bytes) -> Drain:
    """Find the one drain that a body is from."""
    for credentials in admitted:
        if not credentials.signed or credentials.verify(headers, body):
            return credentials.drain
    why = _by_drain(admitted, [one.why_not_verified(headers) for one in admitted])
    raise NotAllowed("the body's signature does not match the drain's secret", log_fields={"error": why})


def _by_drain(drains: Sequence[Credentials], problems: Sequence[str]) -> str:
    """Return the problem of the only drain, or of each with its name."""
    if len(drains) == 1:
        return problems[0]
    named = [f"drain '{one.drain.name}': {why}" for one, why in zip(drains, problems, strict=True)]
    more = [f"{len(named) - DRAINS_LOGGED_MAX} more drains"] if len(named) > DRAINS_LOGGED_MAX else []
    return "; ".join([*named[:DRAINS_LOGGED_MAX], *more])
