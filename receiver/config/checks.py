"""Checks of settings against each other and against this machine. Each reports the keys and expected values.

Drains may share a path if each requires credentials and no two accept the same credentials: then the
credentials identify the drain.
"""

from __future__ import annotations

import errno
import os
import re
import ssl
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

from receiver.config.access import (
    HEADER_NAME,
    api_exposure,
    api_hosts,
    proxy,
    served_by_api,
    token_problems,
    users,
)
from receiver.config.addresses import (
    CLICKHOUSE,
    DATABASE,
    Address,
    cluster_problems,
    is_beyond_loopback,
    listen_addresses,
    parse_address,
    parse_store_url,
)
from receiver.config.pem import why_unusable
from receiver.config.platform import PATH, platform_problems, redaction, webhook_problems
from receiver.config.promoted import promoted_problems
from receiver.config.retention import retention_problems
from receiver.errors import OperatorError
from receiver.settings import Drain, Settings, Tls
from receiver.sizes import size_text

_DRAIN_NAME = re.compile(r"[\w.:/-]+(?: [\w.:/-]+)*")
_ANSWER_HEADERS = re.compile(
    "accept-encoding|allow|connection|content-.+|date|retry-after|transfer-encoding|www-authenticate"
)
_ATTRIBUTE = re.compile(r"(resource|span):.+")
_ADDRESSES = ("listen", "admin_listen", "api_listen", CLICKHOUSE)
_TLS_FILES = ("cert_file", "key_file", "client_ca_file")
_DRAIN_HEADERS = ("drain.verify_header", "drain.verify_header_name", "drain.header", "drain.signature_header")
_IDENTIFYING = ("drain.name", "drain.tokens", "drain.signature_secrets")
"""Settings that distinguish drains that share a path."""


def problems_of(settings: Settings, unknown: Collection[str] = ()) -> list[str]:
    """Return all problems of these settings.

    `unknown`: settings and tables without a usable value. Checks that read any of them are skipped.
    """
    return [
        problem
        for check, keys in _CHECKS
        if not any(_overlap(key, unknown_key) for unknown_key in unknown for key in keys)
        for problem in check(settings)
    ]


def _overlap(key: str, other: str) -> bool:
    """Whether the keys are equal, or one is a table that contains the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def warnings_of(settings: Settings) -> list[str]:
    """Return warnings about settings that this machine cannot satisfy."""
    disk = _disk_under(settings.data_dir)
    disk_bytes = disk.f_blocks * disk.f_frsize
    needed_bytes = settings.journal.bytes_max + settings.journal.disk_free_min
    if needed_bytes <= disk_bytes:
        return []
    needed, disk_size = size_text(needed_bytes), size_text(disk_bytes)
    sizes = f"journal.bytes_max and journal.disk_free_min are {needed} together"
    return [f"{sizes}; expected at most the {disk_size} of the disk under '{settings.data_dir}'"]


def unreadable_of(settings: Settings, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each TLS file that cannot be read, with the origin of its setting."""
    for key in _TLS_FILES:
        file = getattr(settings.tls, key)
        if why := _why_unreadable(file):
            yield f"'tls.{key}' ({origins[f'tls.{key}']}) names '{file}', which cannot be read: {why}"


def exposure_of(settings: Settings) -> list[str]:
    """Return problems of settings that expose a port to other machines without credentials or TLS."""
    return [*_exposure(settings), *api_exposure(settings)]


def _disk_under(data_dir: str) -> os.statvfs_result:
    """Return the disk of the directory, or of its nearest existing parent. Raises `OSError`."""
    data = Path(data_dir).absolute()
    for path in (data, *data.parents):
        with suppress(FileNotFoundError):
            return os.statvfs(f"{path}/")
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _data_dir(settings: Settings) -> Iterator[str]:
    unusable = f"data_dir '{settings.data_dir}' cannot be used"
    try:
        disk = _disk_under(settings.data_dir)
    except OSError as error:
        yield f"{unusable}: {error.strerror}; expected a directory"
        return
    if not disk.f_blocks:
        yield f"{unusable}: its file system has no space, like /proc; expected a directory on a disk"
    if "?" in settings.data_dir and settings.store.url == "embedded":
        yield f"{unusable}: the embedded engine ends the path at '?'; expected a path without '?'"


def _address(key: str, settings: Settings) -> Iterator[str]:
    try:
        if listen := listen_addresses(settings).get(key):
            parse_address(listen)
    except OperatorError as error:
        yield f"{key} {error}"


def _ports(settings: Settings) -> Iterator[str]:
    taken: dict[Address, str] = {}
    for key, listen in listen_addresses(settings).items():
        with suppress(OperatorError):
            address = parse_address(listen)
            if address.port and address in taken:
                yield f"{key} and {taken[address]} are both '{address}'; expected different ports"
            taken[address] = key


def _exposure(settings: Settings) -> Iterator[str]:
    """Require credentials and TLS for listening beyond loopback, unless `insecure` is set."""
    if settings.insecure:
        return
    beyond = is_beyond_loopback(settings.listen)
    where = f"listen = '{settings.listen}' is beyond loopback" if beyond else "behind_proxy is set"
    if beyond and not (_has_tls(settings.tls) or settings.behind_proxy):
        yield f"{where} without TLS; expected tls.cert_file and tls.key_file, --behind-proxy or --insecure"
    for drain in settings.drain if beyond or settings.behind_proxy else ():
        if not (_has_credentials(drain) or settings.tls.client_ca_file):
            yield (
                f"{where} and drain '{drain.name}' requires no credentials; "
                "expected token_file or signature_secret_file in a [[drain]], or --insecure"
            )


def _tls(settings: Settings) -> Iterator[str]:
    tls = settings.tls
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "tls.key_file" if tls.cert_file else "tls.cert_file"
        yield f"{missing} is missing; expected tls.cert_file and tls.key_file, or neither"
    if tls.self_signed and (tls.cert_file or tls.key_file):
        yield "tls.self_signed is set together with tls.cert_file or tls.key_file; expected only one of them"
    if tls.client_ca_file and not _has_tls(tls):
        yield "tls.client_ca_file is set without a certificate; expected tls.cert_file and tls.key_file"
    if tls.cert_file and tls.key_file and not any(_why_unreadable(getattr(tls, key)) for key in _TLS_FILES):
        yield from _certificate(tls)


def _why_unreadable(file: str) -> str:
    """Return why the file cannot be read; empty if it is readable or not configured."""
    try:
        if file and not stat.S_ISREG(Path(file).stat().st_mode):
            return "it is not a regular file"
        if file:
            Path(file).open("rb").close()
    except OSError as error:
        return error.strerror or "unknown error"
    return ""


def _certificate(tls: Tls) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a callback, OpenSSL would ask for the passphrase on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        yield from why_unusable(tls.cert_file, tls.key_file, error)
    if tls.client_ca_file:
        try:
            context.load_verify_locations(tls.client_ca_file)
        except ssl.SSLError:
            yield f"tls.client_ca_file '{tls.client_ca_file}' contains no certificate; expected PEM"


def _drain_names(settings: Settings) -> Iterator[str]:
    names = [drain.name for drain in settings.drain]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"drain '{name}' is configured {names.count(name)} times; expected different names"


def _each_drain(check: Callable[[Drain], Iterator[str]], settings: Settings) -> Iterator[str]:
    for index, drain in enumerate(settings.drain):
        yield from (f"drain[{index}] {problem}" for problem in check(drain))


def _drain_name(drain: Drain) -> Iterator[str]:
    if not _DRAIN_NAME.fullmatch(drain.name):
        yield f"name is {drain.name!r}; expected letters, digits or . : / _ - and single spaces between them"


def _drain_path(drain: Drain) -> Iterator[str]:
    if not PATH.fullmatch(drain.path):
        yield f"path is {drain.path!r}; expected a path that starts with '/', without query or fragment"


def _drain_headers(drain: Drain) -> Iterator[str]:
    if not drain.verify_header.isascii():
        yield "verify_header is not ASCII; expected the value to answer"
    headers = {
        "header": drain.header,
        "signature_header": drain.signature_header or "x",
        "verify_header_name": drain.verify_header_name,
    }
    for key, header in headers.items():
        if not HEADER_NAME.fullmatch(header):
            yield f"{key} is {header!r}; expected the name of an HTTP header"
    if _ANSWER_HEADERS.fullmatch(drain.verify_header_name.lower()):
        yield f"verify_header_name is {drain.verify_header_name!r}, which HTTP uses; expected another name"


def _drain_signature(drain: Drain) -> Iterator[str]:
    if drain.signature_header and not drain.signature_secrets:
        yield "signature_header is set without a secret; expected signature_secret_file"
    if drain.signature_secrets and not drain.signature_header:
        yield "signature_secret_file is set without signature_header; expected the header with the HMAC"


def _drain_tokens(drain: Drain) -> Iterator[str]:
    yield from token_problems(drain.tokens)


def _shared_paths(settings: Settings) -> Iterator[str]:
    by_path: dict[str, list[Drain]] = defaultdict(list)
    for drain in settings.drain:
        by_path[drain.path.rstrip("/")].append(drain)
    for drains in by_path.values():
        for left, right in combinations(drains, 2):
            if not _can_be_distinguished(left, right):
                yield (
                    f"drains '{left.name}' and '{right.name}' share the path '{left.path}' and cannot be "
                    "distinguished; expected different paths, or different tokens or signature secrets"
                )


def _can_be_distinguished(left: Drain, right: Drain) -> bool:
    if left.tokens and right.tokens:
        return not set(left.tokens) & set(right.tokens)
    if left.signature_secrets and right.signature_secrets:
        return not set(left.signature_secrets) & set(right.signature_secrets)
    return _has_credentials(left) and _has_credentials(right)


def _store_url(settings: Settings) -> Iterator[str]:
    try:
        parse_store_url(settings.store.url)
    except OperatorError as error:
        yield f"store.url {error}"


def _store_password(settings: Settings) -> Iterator[str]:
    password = settings.store.password
    try:
        url = parse_store_url(settings.store.url)
    except OperatorError:
        return
    if url is None and password:
        yield "store.password is set for the embedded store; expected a server's store.url"
    if url is not None and url.password and password:
        yield "store.url contains a password and store.password is set; expected only one of them"


def _database(settings: Settings) -> Iterator[str]:
    if not DATABASE.fullmatch(settings.store.database):
        yield f"store.database is {settings.store.database!r}; expected letters, digits and underscores"


def _segments(settings: Settings) -> Iterator[str]:
    journal = settings.journal
    if journal.segment_bytes_max > journal.bytes_max:
        limit = size_text(journal.bytes_max)
        yield f"journal.segment_bytes_max is over journal.bytes_max = {limit}; expected less"


def _bodies(settings: Settings) -> Iterator[str]:
    limits = settings.limits
    bodies = {"limits.body_bytes_max": limits.body_bytes_max}
    bodies |= {
        f"drain[{index}].body_bytes_max": drain.body_bytes_max or 0
        for index, drain in enumerate(settings.drain)
    }
    for key, body_bytes_max in bodies.items():
        if body_bytes_max > limits.inflight_bytes_max:
            limit = size_text(limits.inflight_bytes_max)
            yield f"{key} is over limits.inflight_bytes_max = {limit}; expected less"


def _resolve(settings: Settings) -> Iterator[str]:
    for key in ("project", "deployment"):
        for attribute in getattr(settings.resolve, key):
            if not _ATTRIBUTE.fullmatch(attribute):
                yield f"resolve.{key} contains '{attribute}'; expected 'resource:KEY' or 'span:KEY'"


def _sampling(settings: Settings) -> Iterator[str]:
    sampling = settings.sampling
    if sampling.mode == "off" and (sampling.rule or sampling.rate < 1):
        yield "sampling.rate or a rule is set while sampling.mode is 'off'; expected a mode that samples"
    known = {drain.name for drain in settings.drain}
    for index, rule in enumerate(sampling.rule):
        if rule.drain is not None and rule.drain not in known:
            yield f"sampling.rule[{index}].drain is '{rule.drain}'; expected the name of a drain"


def _has_tls(tls: Tls) -> bool:
    return bool(tls.cert_file or tls.self_signed)


def _has_credentials(drain: Drain) -> bool:
    return bool(drain.tokens or drain.signature_secrets)


_CHECKS: tuple[tuple[Callable[[Settings], Iterator[str]], tuple[str, ...]], ...] = (
    (_data_dir, ("data_dir",)),
    *((partial(_address, key), (key,)) for key in _ADDRESSES),
    (_ports, _ADDRESSES),
    (_exposure, ("listen", "insecure", "behind_proxy", "tls", *_IDENTIFYING)),
    (api_exposure, ("api_listen", "api_token", "insecure", "api")),
    (served_by_api, (CLICKHOUSE, "store.url", "api.enabled", "platform")),
    (api_hosts, ("api_hosts",)),
    (users, ("api.user", "api_token")),
    (proxy, ("api.proxy",)),
    (_tls, ("tls",)),
    (_drain_names, ("drain.name",)),
    (partial(_each_drain, _drain_name), ("drain.name",)),
    (partial(_each_drain, _drain_path), ("drain.path",)),
    (partial(_each_drain, _drain_headers), _DRAIN_HEADERS),
    (partial(_each_drain, _drain_signature), ("drain.signature_header", "drain.signature_secrets")),
    (partial(_each_drain, _drain_tokens), ("drain.tokens",)),
    (_shared_paths, ("drain.path", *_IDENTIFYING)),
    (platform_problems, ("platform",)),
    (webhook_problems, ("platform.webhook", "limits.inflight_bytes_max", "drain.path")),
    (_database, ("store.database",)),
    (cluster_problems, ("store.cluster", "store.storage_policy")),
    (_store_url, ("store.url",)),
    (_store_password, ("store.url", "store.password")),
    (promoted_problems, ("store.promoted_attributes",)),
    (
        retention_problems,
        ("store.retention_days", "store.late_margin_days", "store.retention_rule", "store.url", "drain.name"),
    ),
    (_segments, ("journal.bytes_max", "journal.segment_bytes_max")),
    (_bodies, ("limits.body_bytes_max", "limits.inflight_bytes_max", "drain.body_bytes_max")),
    (_resolve, ("resolve",)),
    (_sampling, ("sampling", "drain.name")),
    (redaction, ("platform.explain",)),
)
"""Every check, with the settings and tables that it reads."""


def require_place(settings: Settings) -> None:
    """Raise `OperatorError` if this user can neither create nor write to the data directory."""
    data = Path(settings.data_dir).absolute()
    existing = next(path for path in (data, *data.parents) if path.exists() or path.is_symlink())
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        raise OperatorError(
            f"data_dir '{settings.data_dir}' cannot be used: no permission to write in '{existing}'; "
            "expected a directory that this user may write to"
        )


def require_engine(settings: Settings) -> None:
    """Raise `OperatorError` if the embedded store is configured and not installed, or with a cluster."""
    if settings.store.url == "embedded" and settings.store.cluster:
        raise OperatorError(
            "store.cluster is set for the embedded store; expected a server of the cluster in store.url"
        )
    if settings.store.url == "embedded" and find_spec("chdb") is None:
        raise OperatorError(
            "the embedded store needs chdb, which is not installed; expected `pip install '.[embedded]'` "
            "in the receiver's source directory, or a server's store.url"
        )
