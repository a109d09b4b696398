"""What settings must be to each other. Every problem is told, with the keys at fault and what was expected.

Drains may share a path when each asks for credentials and no two would take the same ones: then the
credentials say which drain it is.
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

from receiver.config.addresses import DATABASE, Address, parse_address, parse_store_url
from receiver.config.pem import why_unusable
from receiver.errors import OperatorError
from receiver.settings import Drain, Settings, Tls
from receiver.sizes import size_text

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_DRAIN_NAME = re.compile(r"[\w.:/-]+(?: [\w.:/-]+)*")
_ANSWER_HEADERS = re.compile(
    "accept-encoding|allow|connection|content-.+|date|retry-after|transfer-encoding|www-authenticate"
)
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?")
_ATTRIBUTE = re.compile(r"(resource|span):.+")
_ADDRESSES = ("listen", "admin_listen", "api_listen")
_TLS_FILES = ("cert_file", "key_file", "client_ca_file")
_DRAIN_HEADERS = (
    "drain.verify_header",
    "drain.verify_header_name",
    "drain.header",
    "drain.signature_header",
)
_TELL_APART = ("drain.name", "drain.tokens", "drain.signature_secrets")
"""What tells one drain from another on a path."""


def problems_of(settings: Settings, unknown: Collection[str] = ()) -> list[str]:
    """Everything that is wrong with these settings, taken together.

    `unknown`: knobs and tables that were not understood. What looks at one of them is not asked.
    """
    return [
        problem
        for check, looks_at in _CHECKS
        if not any(_is_within(one, other) for one in unknown for other in looks_at)
        for problem in check(settings)
    ]


def _is_within(one: str, other: str) -> bool:
    """Whether one of them is the other, or in it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def warnings_of(settings: Settings) -> list[str]:
    """What will hardly work as it is meant on this machine."""
    disk = _disk_under(settings.data_dir)
    disk_bytes = disk.f_blocks * disk.f_frsize
    wanted_bytes = settings.journal.bytes_max + settings.journal.disk_free_min
    if wanted_bytes <= disk_bytes:
        return []
    wanted, disk_size = size_text(wanted_bytes), size_text(disk_bytes)
    what = f"journal.bytes_max and journal.disk_free_min are {wanted} together"
    return [f"{what}; expected at most the {disk_size} of the disk under '{settings.data_dir}'"]


def unreadable_of(settings: Settings, origins: Mapping[str, str]) -> Iterator[str]:
    """Files of TLS that cannot be read, and who named them."""
    for key in _TLS_FILES:
        file = getattr(settings.tls, key)
        if why := _why_unreadable(file):
            yield f"'tls.{key}' ({origins[f'tls.{key}']}) names '{file}', which cannot be read: {why}"


def exposure_of(settings: Settings) -> list[str]:
    """What these settings would open to others than this machine without credentials or TLS."""
    return [*_exposure(settings), *_api(settings)]


def is_beyond_loopback(listen: str) -> bool:
    """Whether others than this machine reach it. An address that is none is another check's problem."""
    try:
        return not parse_address(listen).is_loopback
    except OperatorError:
        return False


def _disk_under(data_dir: str) -> os.statvfs_result:
    """Of the directory, or of what it would be made in. Raises `OSError` where there can be none."""
    data = Path(data_dir).absolute()
    for path in (data, *data.parents):
        with suppress(FileNotFoundError):
            return os.statvfs(f"{path}/")
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _data_dir(settings: Settings) -> Iterator[str]:
    what = f"data_dir '{settings.data_dir}' cannot be used"
    try:
        disk = _disk_under(settings.data_dir)
    except OSError as reason:
        yield f"{what}: {reason.strerror}; expected a directory"
        return
    if not disk.f_blocks:
        yield f"{what}: it is on a file system without room, as /proc; expected a directory on a disk"
    if "?" in settings.data_dir and settings.store.url == "embedded":
        yield f"{what}: the embedded engine takes a '?' for the end of the path; expected a path without one"


def _address(key: str, settings: Settings) -> Iterator[str]:
    try:
        parse_address(getattr(settings, key))
    except OperatorError as reason:
        yield f"{key} {reason}"


def _ports(settings: Settings) -> Iterator[str]:
    taken: dict[Address, str] = {}
    for key in _ADDRESSES:
        with suppress(OperatorError):
            address = parse_address(getattr(settings, key))
            if address.port and address in taken:
                yield f"{key} is '{address}', as is {taken[address]}; expected a port of its own"
            taken[address] = key


def _exposure(settings: Settings) -> Iterator[str]:
    """Listening where others reach it takes credentials and TLS, unless said otherwise on purpose."""
    if settings.insecure:
        return
    beyond = is_beyond_loopback(settings.listen)
    where = f"listen = '{settings.listen}' is beyond loopback" if beyond else "behind_proxy is said"
    if beyond and not (_has_tls(settings.tls) or settings.behind_proxy):
        yield f"{where} without TLS; expected tls.cert_file and tls.key_file, --behind-proxy or --insecure"
    for drain in settings.drain if beyond or settings.behind_proxy else ():
        if not (_has_credentials(drain) or settings.tls.client_ca_file):
            yield (
                f"{where} and drain '{drain.name}' takes anything from anyone; "
                "expected token_file or signature_secret_file in a [[drain]], or --insecure"
            )


def _api(settings: Settings) -> Iterator[str]:
    if is_beyond_loopback(settings.api_listen) and not settings.api_token and not settings.insecure:
        where = f"api_listen = '{settings.api_listen}' is beyond loopback"
        yield f"{where} without a token; expected api_token_file"


def _api_hosts(settings: Settings) -> Iterator[str]:
    for name in settings.api_hosts:
        if not _HOST_NAME.fullmatch(name):
            yield f"api_hosts names '{name}'; expected a DNS name without scheme, port or path"


def _tls(settings: Settings) -> Iterator[str]:
    tls = settings.tls
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "tls.key_file" if tls.cert_file else "tls.cert_file"
        yield f"{missing} is missing; expected tls.cert_file and tls.key_file, or neither"
    if tls.self_signed and (tls.cert_file or tls.key_file):
        yield "tls.self_signed is said beside tls.cert_file or tls.key_file; expected one or the other"
    if tls.client_ca_file and not _has_tls(tls):
        yield "tls.client_ca_file is set without a certificate; expected tls.cert_file and tls.key_file"
    if tls.cert_file and tls.key_file and not any(_why_unreadable(getattr(tls, key)) for key in _TLS_FILES):
        yield from _certificate(tls)


def _why_unreadable(file: str) -> str:
    """Empty: it can be read, or none is named."""
    try:
        if file and not stat.S_ISREG(Path(file).stat().st_mode):
            return "it is no regular file"
        if file:
            Path(file).open("rb").close()
    except OSError as reason:
        return reason.strerror or "no reason is known"
    return ""


def _certificate(tls: Tls) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: b"")
    except (ssl.SSLError, ValueError) as reason:
        yield from why_unusable(tls.cert_file, tls.key_file, reason)
    if tls.client_ca_file:
        try:
            context.load_verify_locations(tls.client_ca_file)
        except ssl.SSLError:
            yield f"tls.client_ca_file '{tls.client_ca_file}' holds no certificate; expected PEM"


def _drain_names(settings: Settings) -> Iterator[str]:
    names = [drain.name for drain in settings.drain]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"drain '{name}' is configured {names.count(name)} times; expected names of their own"


def _each_drain(check: Callable[[Drain], Iterator[str]], settings: Settings) -> Iterator[str]:
    for place, drain in enumerate(settings.drain):
        yield from (f"drain[{place}] {problem}" for problem in check(drain))


def _drain_name(drain: Drain) -> Iterator[str]:
    if not _DRAIN_NAME.fullmatch(drain.name):
        yield f"name is {drain.name!r}; expected letters, digits or . : / _ - and single spaces between them"


def _drain_path(drain: Drain) -> Iterator[str]:
    if not _PATH.fullmatch(drain.path):
        yield f"path is {drain.path!r}; expected a path that starts with '/', without query or fragment"


def _drain_headers(drain: Drain) -> Iterator[str]:
    if not drain.verify_header.isascii():
        yield "verify_header holds more than ASCII; expected the value to answer"
    headers = {
        "header": drain.header,
        "signature_header": drain.signature_header or "x",
        "verify_header_name": drain.verify_header_name,
    }
    for key, header in headers.items():
        if not _HEADER.fullmatch(header):
            yield f"{key} is {header!r}; expected the name of an HTTP header"
    if _ANSWER_HEADERS.fullmatch(drain.verify_header_name.lower()):
        yield f"verify_header_name is {drain.verify_header_name!r}, a header of HTTP; expected another"


def _drain_signature(drain: Drain) -> Iterator[str]:
    if drain.signature_header and not drain.signature_secrets:
        yield "signature_header is set without a secret; expected signature_secret_file"
    if drain.signature_secrets and not drain.signature_header:
        yield "signature_secret_file is set without signature_header; expected the header that holds the HMAC"


def _drain_tokens(drain: Drain) -> Iterator[str]:
    if not all(token.isascii() and token.isprintable() for token in drain.tokens):
        yield "token holds more than printable ASCII; expected what an HTTP header can carry"
    if any(token != token.strip() for token in drain.tokens):
        yield "token begins or ends with white space, which is no part of an HTTP header; expected it without"


def _shared_paths(settings: Settings) -> Iterator[str]:
    by_path: dict[str, list[Drain]] = defaultdict(list)
    for drain in settings.drain:
        by_path[drain.path.rstrip("/")].append(drain)
    for drains in by_path.values():
        for one, other in combinations(drains, 2):
            if not _is_told_apart(one, other):
                yield (
                    f"drains '{one.name}' and '{other.name}' share a path ('{one.path}') and look the same; "
                    "expected a path of their own, or tokens or signature secrets of their own for each"
                )


def _is_told_apart(one: Drain, other: Drain) -> bool:
    if one.tokens and other.tokens:
        return not set(one.tokens) & set(other.tokens)
    if one.signature_secrets and other.signature_secrets:
        return not set(one.signature_secrets) & set(other.signature_secrets)
    return _has_credentials(one) and _has_credentials(other)


def _store_url(settings: Settings) -> Iterator[str]:
    try:
        parse_store_url(settings.store.url)
    except OperatorError as reason:
        yield f"store.url {reason}"


def _store_password(settings: Settings) -> Iterator[str]:
    password = settings.store.password
    try:
        url = parse_store_url(settings.store.url)
    except OperatorError:
        return
    if url is None and password:
        yield "store.password is set for the embedded store; expected a server's store.url"
    if url is not None and url.password and password:
        yield "store.url holds a password and store.password is set; expected one"


def _database(settings: Settings) -> Iterator[str]:
    if not DATABASE.fullmatch(settings.store.database):
        yield f"store.database is {settings.store.database!r}; expected letters, digits and underscores"


def _retention(settings: Settings) -> Iterator[str]:
    days, margin_days = settings.store.retention_days, settings.store.late_margin_days
    if 0 < days <= margin_days:
        yield (
            f"store.retention_days is {days}; expected more than store.late_margin_days = {margin_days}, "
            "or 0 for ever"
        )


def _segments(settings: Settings) -> Iterator[str]:
    journal = settings.journal
    if journal.segment_bytes_max > journal.bytes_max:
        limit = size_text(journal.bytes_max)
        yield f"journal.segment_bytes_max is over journal.bytes_max = {limit}; expected less"


def _bodies(settings: Settings) -> Iterator[str]:
    limits = settings.limits
    bodies = {"limits.body_bytes_max": limits.body_bytes_max}
    bodies |= {
        f"drain[{n}].body_bytes_max": drain.body_bytes_max or 0 for n, drain in enumerate(settings.drain)
    }
    for key, body_bytes_max in bodies.items():
        if body_bytes_max > limits.inflight_bytes_max:
            limit = size_text(limits.inflight_bytes_max)
            yield f"{key} is over limits.inflight_bytes_max = {limit}; expected less"


def _resolve(settings: Settings) -> Iterator[str]:
    for key in ("project", "deployment"):
        for attribute in getattr(settings.resolve, key):
            if not _ATTRIBUTE.fullmatch(attribute):
                yield f"resolve.{key} holds '{attribute}'; expected 'resource:KEY' or 'span:KEY'"


def _sampling(settings: Settings) -> Iterator[str]:
    sampling = settings.sampling
    if sampling.mode == "off" and (sampling.rule or sampling.rate < 1):
        yield "sampling.rate or a rule is set while sampling.mode is 'off'; expected a mode that samples"
    known = {drain.name for drain in settings.drain}
    for place, rule in enumerate(sampling.rule):
        if rule.drain is not None and rule.drain not in known:
            yield f"sampling.rule[{place}].drain is '{rule.drain}'; expected the name of a drain"


def _has_tls(tls: Tls) -> bool:
    return bool(tls.cert_file or tls.self_signed)


def _has_credentials(drain: Drain) -> bool:
    return bool(drain.tokens or drain.signature_secrets)


_CHECKS: tuple[tuple[Callable[[Settings], Iterator[str]], tuple[str, ...]], ...] = (
    (_data_dir, ("data_dir",)),
    *((partial(_address, key), (key,)) for key in _ADDRESSES),
    (_ports, _ADDRESSES),
    (_exposure, ("listen", "insecure", "behind_proxy", "tls", *_TELL_APART)),
    (_api, ("api_listen", "api_token", "insecure")),
    (_api_hosts, ("api_hosts",)),
    (_tls, ("tls",)),
    (_drain_names, ("drain.name",)),
    (partial(_each_drain, _drain_name), ("drain.name",)),
    (partial(_each_drain, _drain_path), ("drain.path",)),
    (partial(_each_drain, _drain_headers), _DRAIN_HEADERS),
    (partial(_each_drain, _drain_signature), ("drain.signature_header", "drain.signature_secrets")),
    (partial(_each_drain, _drain_tokens), ("drain.tokens",)),
    (_shared_paths, ("drain.path", *_TELL_APART)),
    (_database, ("store.database",)),
    (_store_url, ("store.url",)),
    (_store_password, ("store.url", "store.password")),
    (_retention, ("store.retention_days", "store.late_margin_days")),
    (_segments, ("journal.bytes_max", "journal.segment_bytes_max")),
    (_bodies, ("limits.body_bytes_max", "limits.inflight_bytes_max", "drain.body_bytes_max")),
    (_resolve, ("resolve",)),
    (_sampling, ("sampling", "drain.name")),
)
"""Every check, and the knobs and tables it looks at."""


def require_place(settings: Settings) -> None:
    """Raises `OperatorError` where the data directory could not be made or written to by this user."""
    data = Path(settings.data_dir).absolute()
    there = next(path for path in (data, *data.parents) if path.exists() or path.is_symlink())
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        raise OperatorError(
            f"data_dir '{settings.data_dir}' cannot be used: nothing can be made in '{there}'; "
            "expected a directory that this user may write to"
        )


def require_engine(settings: Settings) -> None:
    """Raises `OperatorError` where the embedded store is wanted and cannot be had."""
    if settings.store.url == "embedded" and find_spec("chdb") is None:
        raise OperatorError(
            "the embedded store needs chdb, which is not installed; expected `pip install '.[embedded]'` "
            "where the receiver's sources are, or a server's store.url"
        )
