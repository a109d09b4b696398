"""Checks of the settings that control access to the API: its token, its users and a trusted proxy."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator

from receiver.config.addresses import CLICKHOUSE, is_beyond_loopback
from receiver.settings import Platform, Settings

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?")
_USER_NAME = re.compile(r"[\w.@-]+")
USERS_MAX = 64
"""Maximum number of users: each request with a cookie computes a signature for each."""
_OTHER_MEANING = {"authorization", "cookie", "host", "origin"}
"""Headers that identify a request in another way, and that clients set themselves."""


def api_exposure(settings: Settings) -> Iterator[str]:
    """Require a proof of identity for each port with stored spans that other machines can reach."""
    has_proof = settings.api_token or settings.api.user or settings.api.proxy.user_header
    is_public = settings.api.enabled and is_beyond_loopback(settings.api_listen)
    if is_public and not has_proof and not settings.insecure:
        where = f"api_listen = '{settings.api_listen}' is beyond loopback"
        yield f"{where} without a token; expected api_token_file"
    listen = settings.api.clickhouse_listen
    if is_beyond_loopback(listen) and not settings.api.clickhouse_token and not settings.insecure:
        where = f"{CLICKHOUSE} = '{listen}' is beyond loopback"
        yield f"{where} without a token; expected api.clickhouse_token_file"


def served_by_api(settings: Settings) -> Iterator[str]:
    """Require the API for what it serves, and the embedded store for the ClickHouse endpoint."""
    if settings.api.clickhouse_listen and not settings.api.enabled:
        yield f"{CLICKHOUSE} is set with api.enabled = false; expected the API, which runs its statements"
    if settings.platform != Platform() and not settings.api.enabled:
        yield "[platform] is set with api.enabled = false; expected the API, which has the platform's pages"
    if settings.api.clickhouse_listen and settings.store.url != "embedded":
        yield (
            f"{CLICKHOUSE} is set with store.url = '{settings.store.url}'; clickhouse_listen serves the "
            "embedded store; a server has its own HTTP interface"
        )


def api_hosts(settings: Settings) -> Iterator[str]:
    for name in settings.api_hosts:
        if not _HOST_NAME.fullmatch(name):
            yield f"api_hosts names '{name}'; expected a DNS name without scheme, port or path"


def users(settings: Settings) -> Iterator[str]:
    """Require that name and token each identify a user."""
    names = [user.name for user in settings.api.user]
    if len(names) > USERS_MAX:
        yield f"api.user has {len(names)} entries; expected at most {USERS_MAX}"
    for index, user in enumerate(settings.api.user):
        if not _USER_NAME.fullmatch(user.name):
            yield f"api.user[{index}] name is {user.name!r}; expected letters, digits and . _ @ -"
        if names.index(user.name) != index:
            yield f"api.user '{user.name}' is configured more than once; expected different names"
        yield from (f"api.user[{index}] {problem}" for problem in token_problems([user.token]))
        if user.token in {settings.api_token, *(other.token for other in settings.api.user[:index])}:
            yield f"api.user[{index}] has the token of another user or of api_token; expected another token"


def proxy(settings: Settings) -> Iterator[str]:
    """Require the addresses of a trusted proxy, because every client can send its header."""
    trusted = settings.api.proxy
    if trusted.user_header and not HEADER_NAME.fullmatch(trusted.user_header):
        yield f"api.proxy.user_header is {trusted.user_header!r}; expected the name of an HTTP header"
    if trusted.user_header.lower() in _OTHER_MEANING:
        yield f"api.proxy.user_header is {trusted.user_header!r}, which clients send; expected another name"
    if bool(trusted.user_header) != bool(trusted.allowed_peers):
        yield "api.proxy has only one of user_header and allowed_peers; expected both, or neither"
    for peers in trusted.allowed_peers:
        try:
            ipaddress.ip_network(peers)
        except ValueError:
            yield f"api.proxy.allowed_peers has {peers!r}; expected an address or a network like 10.0.0.0/24"


def token_problems(tokens: Collection[str]) -> Iterator[str]:
    """Yield why a client could not send these tokens in a header."""
    if not all(token.isascii() and token.isprintable() for token in tokens):
        yield "token contains characters that an HTTP header cannot carry; expected printable ASCII"
    if any(token != token.strip() for token in tokens):
        yield "token begins or ends with white space, which HTTP strips from headers; expected none there"
