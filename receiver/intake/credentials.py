"""Credentials: checks tokens before the body is read, and signatures afterwards.

    401   credentials are missing, unknown or incomplete
    403   the token belongs to a drain at another path, or the signature does not match

Invariant: every secret of every candidate drain is compared in constant time, even after one has matched. No
    byte of the body is read for a sender whose token is wrong.
Never: a secret in a message; a comparison of `str`, which raises on non-ASCII.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from multidict import MultiMapping

from receiver.errors import NotAllowed, Unauthenticated
from receiver.settings import Drain

HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
SIGNATURE_ALGORITHMS = ("sha1", "sha256")
INCOMPLETE = "credentials are missing, unknown or incomplete; expected those of this path"
DRAINS_LOGGED_MAX = 4
"""Number of drains of one path that a log line about missing credentials names."""


def _raw(value: str) -> bytes:
    """Return the bytes of a header as they were on the wire."""
    # aiohttp decodes headers as UTF-8 with surrogates for other bytes.
    return value.encode("utf-8", "surrogateescape")


class Credentials:
    """The credentials that one drain requires."""

    def __init__(self, drain: Drain) -> None:
        self.drain = drain
        self.signed = bool(drain.signature_secrets)
        self._header = drain.header
        self._is_bearer = drain.header.lower() == "authorization"
        self._token_digests = [hashlib.sha256(token.encode()).digest() for token in drain.tokens]
        self._secrets = [secret.encode() for secret in drain.signature_secrets]
        self._algorithm = drain.signature_algorithm

    @property
    def header_names(self) -> tuple[str, ...]:
        """Return the headers that this drain reads."""
        token = (self._header,) if self._token_digests else ()
        return (*token, self.drain.signature_header) if self.signed else token

    @property
    def strength(self) -> int:
        """Precedence among drains of one path. Drains that require more credentials are tried first."""
        return 2 * bool(self._token_digests) + self.signed

    def admit(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the token and the signature header that this drain requires."""
        has_signature = not self.signed or self.drain.signature_header in headers
        return self.has_valid_token(headers) & has_signature

    def has_valid_token(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request has a token of this drain, or the drain requires none."""
        # Digests have equal lengths, so the comparison does not reveal the length of a token.
        digest = hashlib.sha256(_raw(self._presented(headers))).digest()
        is_valid = not self._token_digests
        for known in self._token_digests:
            # No early exit: the time of the check must not reveal which token matched.
            is_valid |= hmac.compare_digest(digest, known)
        return is_valid

    @property
    def requires_token(self) -> bool:
        """Return whether this drain requires a token."""
        return bool(self._token_digests)

    def _presented(self, headers: Mapping[str, str]) -> str:
        value = headers.get(self._header, "").strip()
        if not self._is_bearer:
            return value
        scheme, _, token = value.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def verify(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether the body, as received, is signed with a secret of this drain."""
        presented = _signature(headers.get(self.drain.signature_header, ""), self._algorithm)
        is_valid = False
        for secret in self._secrets:
            # No early exit, as for tokens.
            is_valid |= hmac.compare_digest(presented, hmac.digest(secret, body, self._algorithm))
        return is_valid

    def why_not_admitted(self, headers: Mapping[str, str]) -> str:
        """Return which credentials are missing or wrong, for the log, without any value that was sent."""
        problems = [] if self.has_valid_token(headers) else [self._token_problem(headers)]
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
            return f"token is missing after its scheme; {where}"
        # A likely mistake: the drain expects the bare token in its own header.
        if not self._is_bearer and value.partition(" ")[0].lower() == "bearer":
            return f"token has a scheme; {where}"
        return f"token is unknown; {where}"

    def why_not_verified(self, headers: Mapping[str, str]) -> str:
        """Return why the signature of a body does not match, for the log."""
        name, algorithm = self.drain.signature_header, self._algorithm
        value = headers.get(name, "")
        if _signature(value, algorithm):
            # Webhooks have no drain.
            secrets = "the drain's secrets" if self.drain.name else "the secrets of platform.webhook"
            return f"signature in the header '{name}' does not match the body with any of {secrets}"
        digits = 2 * hashlib.new(algorithm).digest_size
        others = [other for other in SIGNATURE_ALGORITHMS if other != algorithm and _signature(value, other)]
        problem = f"is an HMAC-{others[0]}" if others else f"is not an HMAC-{algorithm}"
        return f"signature in the header '{name}' {problem}; expected {digits} hex digits of HMAC-{algorithm}"


def _signature(header: str, algorithm: str) -> bytes:
    """Decode a hex signature, with or without its algorithm prefix; empty if it is malformed."""
    value = header.strip()
    if value[: len(algorithm) + 1].lower() == f"{algorithm}=":
        value = value[len(algorithm) + 1 :]
    # `fromhex` alone would also accept spaces between the digits.
    is_hex = len(value) == 2 * hashlib.new(algorithm).digest_size and HEX_DIGITS.issuperset(value)
    # No digest equals the empty one, so a malformed signature fails like a wrong one.
    return bytes.fromhex(value) if is_hex else b""


def refuse_repeats(at_path: Sequence[Credentials], headers: MultiMapping[str]) -> None:
    """Raise `Unauthenticated` for two headers of a credential: a proxy may check the other one."""
    for name in {name for drain in at_path for name in drain.header_names}:
        if len(headers.getall(name, ())) > 1:
            raise Unauthenticated(INCOMPLETE, log_fields={"error": f"header '{name}' is repeated"})


def authorise(
    at_path: Sequence[Credentials], at_any_path: Sequence[Credentials], headers: Mapping[str, str]
) -> list[Credentials]:
    """Return the drains at this path whose credentials the request has, or raise."""
    admitted = [credentials for credentials in at_path if credentials.admit(headers)]
    if admitted:
        return admitted
    # A list, not the first match: the time must not depend on which drain owns the token.
    token_owners = [drain for drain in at_any_path if drain.requires_token and drain.has_valid_token(headers)]
    why = _by_drain(at_path, [drain.why_not_admitted(headers) for drain in at_path])
    elsewhere = next((owner.drain.name for owner in token_owners if owner not in at_path), None)
    if elsewhere is not None:
        raise NotAllowed(
            "the credentials are known, but no drain at this path accepts them; "
            "expected the token of a drain at this path, and its signature if it requires one",
            log_fields={"error": f"token is known for drain '{elsewhere}' at another path; here: {why}"},
        )
    raise Unauthenticated(INCOMPLETE, log_fields={"error": why})


def verify(admitted: Sequence[Credentials], headers: Mapping[str, str], body: bytes) -> Drain:
    """Return the drain that a body is from. Raises `NotAllowed` if no signature matches."""
    for credentials in admitted:
        if not credentials.signed or credentials.verify(headers, body):
            return credentials.drain
    why = _by_drain(admitted, [drain.why_not_verified(headers) for drain in admitted])
    raise NotAllowed("the body's signature does not match the secret of this path", log_fields={"error": why})


def _by_drain(drains: Sequence[Credentials], problems: Sequence[str]) -> str:
    """Return the problem of the only drain, or the problems of several drains with their names."""
    if len(drains) == 1:
        return problems[0]
    named = [f"drain '{owner.drain.name}': {why}" for owner, why in zip(drains, problems, strict=True)]
    more = [f"{len(named) - DRAINS_LOGGED_MAX} more drains"] if len(named) > DRAINS_LOGGED_MAX else []
    return "; ".join([*named[:DRAINS_LOGGED_MAX], *more])
