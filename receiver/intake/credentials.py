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
    if any(one not in here for one in known):
        raise NotAllowed(
            "known credentials, but no drain at this path takes them as they are; "
            "expected its token, and a signature where it asks for one"
        )
    raise Unauthenticated("no credentials, unknown ones, or not all; expected those of a drain at this path")


def verify(admitted: Sequence[Credentials], headers: Mapping[str, str], body: bytes) -> Drain:
    """Find the one drain that a body is from."""
    for credentials in admitted:
        if not credentials.signed or credentials.verify(headers, body):
            return credentials.drain
    raise NotAllowed("the body's signature does not match the drain's secret")
