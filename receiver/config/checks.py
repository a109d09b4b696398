"""What settings must be to each other. Every problem is told, with the keys at fault and what was expected.

Drains may share a path when each asks for credentials and no two would take the same ones: then the
credentials say which drain it is.
"""

from __future__ import annotations

import os
import re
import ssl
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

from receiver.config.addresses import Address, parse_address, parse_store_url
from receiver.errors import OperatorError
from receiver.settings import Drain, Settings, Tls

DRAIN_NAME_CHARS_MAX = 64

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_DRAIN_NAME = re.compile(r"[\w.:/-]+(?: [\w.:/-]+)*")
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_ATTRIBUTE = re.compile(r"(resource|span):.+")


def problems_of(settings: Settings) -> list[str]:
    """Everything that is wrong with these settings, taken together."""
    return [problem for check in _CHECKS for problem in check(settings)]


def warnings_of(settings: Settings) -> list[str]:
    """What will hardly work as it is meant on this machine."""
    data = Path(settings.data_dir).absolute()
    disk = os.statvfs(next(path for path in (data, *data.parents) if path.exists()))
    disk_bytes = disk.f_blocks * disk.f_frsize
    wanted_bytes = settings.journal.bytes_max + settings.journal.disk_free_min
    if wanted_bytes <= disk_bytes:
        return []
    what = f"journal.bytes_max and journal.disk_free_min are {wanted_bytes} bytes together"
    return [f"{what}; expected at most the {disk_bytes} of the disk under '{settings.data_dir}'"]


def exposure_of(settings: Settings) -> list[str]:
    """What these settings would open to others than this machine without credentials or TLS."""
    return [*_exposure(settings), *_api(settings)]


def is_beyond_loopback(listen: str) -> bool:
    """Whether others than this machine reach it. An address that is none is another check's problem."""
    try:
        return not parse_address(listen).is_loopback
    except OperatorError:
        return False


def _addresses(settings: Settings) -> Iterator[str]:
    taken: dict[Address, str] = {}
    for key in ("listen", "admin_listen", "api_listen"):
        try:
            address = parse_address(getattr(settings, key))
        except OperatorError as reason:
            yield f"{key} {reason}"
            continue
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


def _tls(settings: Settings) -> Iterator[str]:
    tls = settings.tls
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "tls.key_file" if tls.cert_file else "tls.cert_file"
        yield f"{missing} is missing; expected tls.cert_file and tls.key_file, or neither"
    if tls.self_signed and (tls.cert_file or tls.key_file):
        yield "tls.self_signed is said beside tls.cert_file or tls.key_file; expected one or the other"
    if tls.client_ca_file and not _has_tls(tls):
        yield "tls.client_ca_file is set without a certificate; expected tls.cert_file and tls.key_file"
    unreadable = [key for key in ("cert_file", "key_file", "client_ca_file") if not _is_readable(tls, key)]
    yield from (f"tls.{key} names '{getattr(tls, key)}', which cannot be read" for key in unreadable)
    if tls.cert_file and tls.key_file and not unreadable:
        yield from _certificate(tls)


def _is_readable(tls: Tls, key: str) -> bool:
    file: str = getattr(tls, key)
    return not file or (os.path.isfile(file) and os.access(file, os.R_OK))  # noqa: PTH113 - a path as text


def _certificate(tls: Tls) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        yield (
            f"tls.cert_file '{tls.cert_file}' and tls.key_file '{tls.key_file}' do not belong together; "
            "expected a PEM chain and its key, without a passphrase"
        )
    if tls.client_ca_file:
        try:
            context.load_verify_locations(tls.client_ca_file)
        except ssl.SSLError:
            yield f"tls.client_ca_file '{tls.client_ca_file}' holds no certificate; expected PEM"


def _drain_tables(settings: Settings) -> Iterator[str]:
    names = [drain.name for drain in settings.drain]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"drain '{name}' is configured {names.count(name)} times; expected names of their own"
    for place, drain in enumerate(settings.drain):
        yield from (f"drain[{place}] {problem}" for problem in _drain(drain))


def _drain(drain: Drain) -> Iterator[str]:
    if not _DRAIN_NAME.fullmatch(drain.name) or len(drain.name) > DRAIN_NAME_CHARS_MAX:
        yield f"name is no name; expected 1 to {DRAIN_NAME_CHARS_MAX} letters, digits or . : / _ -"
    if not _PATH.fullmatch(drain.path):
        yield f"path is {drain.path!r}; expected a path that starts with '/', without query or fragment"
    if not drain.verify_header.isprintable():
        yield "verify_header holds control characters; expected the value to answer"
    yield from _drain_credentials(drain)


def _drain_credentials(drain: Drain) -> Iterator[str]:
    for key, header in (("header", drain.header), ("signature_header", drain.signature_header or "x")):
        if not _HEADER.fullmatch(header):
            yield f"{key} is {header!r}; expected the name of an HTTP header"
    if drain.signature_header and not drain.signature_secrets:
        yield "signature_header is set without a secret; expected signature_secret_file"
    if drain.signature_secrets and not drain.signature_header:
        yield "signature_secret_file is set without signature_header; expected the header that holds the HMAC"
    if not all(token.isascii() and token.isprintable() for token in drain.tokens):
        yield "token holds more than printable ASCII; expected what an HTTP header can carry"


def _shared_paths(settings: Settings) -> Iterator[str]:
    by_path: dict[str, list[Drain]] = defaultdict(list)
    for drain in settings.drain:
        by_path[drain.path.rstrip("/")].append(drain)
    for path, drains in by_path.items():
        for one, other in combinations(drains, 2):
            if not _is_told_apart(one, other):
                yield (
                    f"drains '{one.name}' and '{other.name}' share a path ('{path}/') and look the same; "
                    "expected a path of their own, or tokens or signature secrets of their own for each"
                )


def _is_told_apart(one: Drain, other: Drain) -> bool:
    if one.tokens and other.tokens:
        return not set(one.tokens) & set(other.tokens)
    if one.signature_secrets and other.signature_secrets:
        return not set(one.signature_secrets) & set(other.signature_secrets)
    return _has_credentials(one) and _has_credentials(other)


def _store(settings: Settings) -> Iterator[str]:
    try:
        url = parse_store_url(settings.store.url)
    except OperatorError as reason:
        yield f"store.url {reason}"
    else:
        if url is None and settings.store.password:
            yield "store.password is set for the embedded store; expected a server's store.url"
    days, margin_days = settings.store.retention_days, settings.store.late_margin_days
    if 0 < days <= margin_days:
        yield (
            f"store.retention_days is {days}; expected more than store.late_margin_days = {margin_days}, "
            "or 0 for ever"
        )


def _sizes(settings: Settings) -> Iterator[str]:
    journal, limits = settings.journal, settings.limits
    if journal.segment_bytes_max > journal.bytes_max:
        yield f"journal.segment_bytes_max is over journal.bytes_max = {journal.bytes_max}; expected less"
    bodies = {"limits.body_bytes_max": limits.body_bytes_max}
    bodies |= {
        f"drain[{n}].body_bytes_max": drain.body_bytes_max or 0 for n, drain in enumerate(settings.drain)
    }
    for key, body_bytes_max in bodies.items():
        if body_bytes_max > limits.inflight_bytes_max:
            yield f"{key} is over limits.inflight_bytes_max = {limits.inflight_bytes_max}; expected less"


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


_CHECKS: tuple[Callable[[Settings], Iterator[str]], ...] = (
    _addresses,
    _exposure,
    _api,
    _tls,
    _drain_tables,
    _shared_paths,
    _store,
    _sizes,
    _resolve,
    _sampling,
)


def require_engine(settings: Settings) -> None:
    """Raises `OperatorError` where the embedded store is wanted and cannot be had."""
    if settings.store.url == "embedded" and find_spec("chdb") is None:
        raise OperatorError(
            "the embedded store needs chdb, which is not installed; expected "
            "pip install 'trace-drain-receiver[embedded]', or a server's store.url"
        )
