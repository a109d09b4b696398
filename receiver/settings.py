"""Every knob: name, type, range, default, and what turning it costs.

Keeps: a settings object is complete, checked and frozen before any process starts. Every knob says its range;
the loader (`config/ranges.py`) holds whatever an operator says to it.
Never: an environment read, a file read or a default outside this room and its loader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Range:
    """What a knob may be: a number from `low` to `high`, a text of so many characters, so many entries."""

    low: float
    high: float


Bytes = Annotated[int, Meta(extra={"form": "bytes"})]
"""A size: a whole number, or as `8GiB` or `512 MB`."""
Secret = Annotated[str, Meta(extra={"form": "secret"}), Range(1, 64 * KIB)]
"""Never printed; `…_file` names a file that holds it."""
FilePath = Annotated[str, Meta(extra={"form": "path"}), Range(0, 4_095)]
"""Relative to the configuration file that names it, else to the working directory."""
Address = Annotated[str, Range(1, 300)]
"""HOST:PORT."""
HostName = Annotated[str, Range(1, 253)]
"""A DNS name, without a port."""
Header = Annotated[str, Range(0, 256)]
"""Name of an HTTP header."""
Attribute = Annotated[str, Range(0, 1_024)]
"""Value of an attribute, or where to find one."""
Rate = Annotated[float, Range(0, 1)]
Seconds = Annotated[float, Range(0.1, 3_600)]
Thousands = Annotated[int, Range(1, 1_000_000)]
Millions = Annotated[int, Range(1, 1_000_000_000)]
BodyBytes = Annotated[Bytes, Range(1 * KIB, 2 * GIB)]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of settings: immutable, and an unknown key is an error."""


class Tls(Frozen, frozen=True):
    """Certificates of the drain endpoint. Reloaded when the files change or on SIGHUP.

    Whether TLS is spoken, and whether clients are asked for a certificate, is settled at the start.
    """

    cert_file: FilePath = ""
    """PEM chain; empty: plain HTTP."""
    key_file: FilePath = ""
    """PEM key."""
    client_ca_file: FilePath = ""
    """PEM of the authorities whose client certificates are required; empty: none is asked for."""
    self_signed: bool = False
    """Make a certificate for localhost at start, to try TLS out. Clients trust `DATA/tls/ca.crt`."""


class Store(Frozen, frozen=True):
    """Where spans rest."""

    url: Annotated[str, Range(1, 2_048)] = "embedded"
    """`embedded`, or `http(s)://user@host:port/database`."""
    password: Secret = ""
    """Secret (`password_file` in the file). Never printed."""
    database: Annotated[str, Range(1, 64)] = "otel"
    """Database that holds `otel_traces`; a path in the URL wins."""
    retention_days: Annotated[int, Range(0, 20_000)] = 30
    """Days until spans are deleted; 0: for ever."""
    late_margin_days: Annotated[int, Range(0, 20_000)] = 3
    """Spans that would be deleted within so many days are stored under their receive time."""
    memory_bytes_max: Annotated[Bytes, Range(256 * MIB, 64 * TIB)] = 4 * GIB
    """What the embedded engine may take."""
    insert_timeout_s: Annotated[int, Range(1, 3_600)] = 120
    """After this an INSERT's outcome is unknown and is counted."""


class Journal(Frozen, frozen=True):
    """What is promised and not yet stored."""

    bytes_max: Annotated[Bytes, Range(256 * KIB, 1_024 * TIB)] = 8 * GIB
    """Disk the journal may hold before senders are told to wait (503)."""
    disk_free_min: Annotated[Bytes, Range(4 * MIB, 1_024 * TIB)] = 2 * GIB
    """Free disk below which senders are told to wait; the embedded engine stops earlier.

    Making room takes some, so it is never nothing.
    """
    segment_rows_max: Annotated[int, Range(1, 100_000_000)] = 200_000
    """Rows that seal a segment."""
    segment_bytes_max: Annotated[Bytes, Range(4 * KIB, 1 * GIB)] = 32 * MIB
    """Bytes that seal a segment."""
    segment_age_ms_max: Annotated[int, Range(0, 600_000)] = 1_000
    """Age that seals a segment once its predecessor is stored. Freshness costs INSERTs."""
    codec: Literal["lz4", "zstd"] = "lz4"
    """Compression of blocks: lz4 is cheaper here, zstd on the wire to the server."""


class Redelivery(Frozen, frozen=True):
    """How long the same delivery is recognised when it comes again."""

    window_s: Annotated[float, Range(1, 366 * DAY_S)] = 86_400.0
    """Of time during which the receiver ran; a clock that is set changes nothing."""
    entries_max: Annotated[int, Range(1_000, 1_000_000_000)] = 20_000_000
    """Deliveries remembered, at up to 48 bytes of disk and 11 of memory. More: the window is shortened."""


class Ledger(Frozen, frozen=True):
    """How finely it is kept what became of every span. What is too much is counted together."""

    hours_max: Annotated[int, Range(1, 87_600)] = 2_160
    """Hours in which something was received: 90 days. Older ones are added up."""
    projects_max: Thousands = 1_000
    """Lines in an hour, one for each drain and project; the other projects are counted as `(other)`."""
    lines_max: Annotated[int, Range(1, 100_000_000)] = 200_000
    """Lines altogether, 0.5 KiB of memory each; beyond, the oldest hours lose their projects."""


class Budget(Frozen, frozen=True):
    """How many failures the platform that sends forgives a drain."""

    failed_answers_max: Thousands = 50
    """Deliveries within an hour that were not answered 2xx."""
    failed_ratio_max: Rate = 0.8
    """Their share of all deliveries of the hour."""


class Resolve(Frozen, frozen=True):
    """How the project and deployment of a span are found: the first attribute that is there wins."""

    preset: Literal["platform", "vercel"] = "platform"
    """`vercel` for that spelling of the attributes."""
    project: Annotated[tuple[Attribute, ...], Range(0, 16)] = ()
    """In order, each `resource:KEY` or `span:KEY`; replaces the preset's."""
    deployment: Annotated[tuple[Attribute, ...], Range(0, 16)] = ()
    """As `project`."""


class SamplingRule(Frozen, frozen=True):
    """What a trace must be for `rate` to hold; the first rule that matches wins."""

    project: Attribute | None = None
    """ProjectId, as resolved; not given: any. So for the three below."""
    environment: Attribute | None = None
    """`deployment.environment.name` of the resource, or the platform's spelling of it."""
    service: Attribute | None = None
    """`service.name` of the resource."""
    drain: Annotated[str, Range(1, 64)] | None = None
    """Name of the drain."""
    rate: Rate = 1.0
    """Share that is kept."""


class Sampling(Frozen, frozen=True):
    """Head sampling. Off by default: everything is kept."""

    mode: Literal["off", "equalizing", "proportional", "hash_seed"] = "off"
    """See docs/sampling.md; `off` keeps everything and records what upstream said."""
    rate: Rate = 1.0
    """Share that is kept where no rule matches."""
    seed: Annotated[int, Range(0, 0xFFFF_FFFF)] = 0
    """For `hash_seed`: the Collector's `hash_seed`."""
    rule: tuple[SamplingRule, ...] = ()
    """Ordered rules (`[[sampling.rule]]`)."""


class Limits(Frozen, frozen=True):
    """Ceilings on one delivery and on all of them together."""

    body_bytes_max: BodyBytes = 64 * MIB
    """Body, before and after unpacking. A drain may set its own."""
    inflight_bytes_max: Annotated[Bytes, Range(1 * KIB, 64 * TIB)] = 512 * MIB
    """Bodies being read or decoded, per intake; those of senders not yet known, a quarter. Over it: 503."""
    connections_max: Thousands = 4_096
    """Open connections, per intake. At the limit, the longest idle one is closed for a new one."""
    connections_per_address_max: Thousands | None = None
    """Of them, from one IPv4 address or IPv6 /64. None: a quarter; no cap for loopback and behind a proxy."""
    admin_connections_max: Thousands = 64
    """Open connections of the admin port. The longest idle one is closed for a newcomer."""
    api_connections_max: Thousands = 256
    """Open connections of the API. The longest idle one is closed for a newcomer."""
    write_timeout_s: Seconds = 60.0
    """A client of the API or the admin port that reads nothing of its answer for so long is disconnected."""
    api_spool_bytes_max: Annotated[Bytes, Range(1 * MIB, 64 * TIB)] = 4 * GIB
    """Disk for answers of the API that clients read more slowly than the store gives them."""
    header_timeout_s: Seconds = 15.0
    """From connect, or from the first byte of a further request, to the end of the headers."""
    keepalive_timeout_s: Seconds = 120.0
    """From an answer to the first byte of the next request on the connection.

    Longer than clients and proxies keep idle connections (60 to 90 s), as some lose a request that crosses
    the close.
    """
    tls_handshake_timeout_s: Seconds = 5.0
    """From connect to the end of the handshake."""
    body_grace_s: Seconds = 5.0
    """After this the floor on body speed applies."""
    body_bytes_per_s_min: Annotated[Bytes, Range(1, 1 * GIB)] = 1 * KIB
    """A slower body closes the connection."""
    body_timeout_s: Seconds = 60.0
    """A body that takes longer closes the connection, however fast it is."""
    answer_deadline_s: Seconds = 5.0
    """From the last body byte to the answer; passed: 503."""
    stop_grace_s: Seconds = 20.0
    """What stopping gives the store, to insert what is sealed, and then the intakes, to answer and seal."""
    spans_max: Millions = 100_000
    """Spans in one delivery."""
    attributes_max: Thousands = 1_024
    """Attributes of one span, resource, scope, event or link."""
    events_max: Thousands = 1_024
    """Events of one span."""
    links_max: Thousands = 1_024
    """Links of one span."""
    nodes_max: Millions = 4_000_000
    """Attribute values, nested ones counted, in one delivery."""
    resources_max: Millions = 10_000
    """Resources in one delivery."""
    scopes_max: Millions = 10_000
    """Scopes in one delivery."""
    value_depth_max: Annotated[int, Range(1, 1_024)] = 64
    """Nesting of an attribute value that is kept."""
    key_bytes_max: Annotated[Bytes, Range(1, 16 * MIB)] = 64 * KIB
    """Bytes of an attribute key."""
    text_bytes_max: Annotated[Bytes, Range(1, 1 * GIB)] = 4 * MIB
    """Bytes of one stored text; longer ones are cut."""
    expanded_bytes_max: Annotated[Bytes, Range(1 * KIB, 64 * GIB)] = 512 * MIB
    """Bytes of a delivery as rows, each with what its resource says. Inserting takes thrice that."""


class Drain(Frozen, frozen=True):
    """A configured sender."""

    name: Annotated[str, Range(1, 64)]
    """Stored with every span, and a metric label."""
    path: Annotated[str, Range(1, 1_024)] = "/v1/traces"
    """Where it posts."""
    header: Header = "authorization"
    """The header that carries the token; `authorization` expects `Bearer TOKEN`."""
    tokens: Annotated[tuple[Secret, ...], Range(0, 1_000)] = ()
    """Secrets (`token_file`, `token_files`); several for rotation. Empty: no token is asked for."""
    signature_header: Header = ""
    """The header that carries the HMAC of the raw body; empty: none is asked for."""
    signature_algorithm: Literal["sha1", "sha256"] = "sha1"
    """Of the HMAC."""
    signature_secrets: Annotated[tuple[Secret, ...], Range(0, 16)] = ()
    """Secrets (`signature_secret_file`, `signature_secret_files`); several for rotation."""
    strict: bool = False
    """Refuse with 400 whatever would be accepted with a warning."""
    acknowledge: Literal["journal", "store"] = "journal"
    """`store`: the 200 waits until ClickHouse has the spans; what it refuses is a `partial_success`."""
    body_bytes_max: BodyBytes | None = None
    """Body limit of this drain; none: `limits.body_bytes_max`."""
    dedupe: bool = True
    """Store a delivery once, however often it comes within `redelivery.window_s`."""
    verify_header: Annotated[str, Range(0, 4_096)] = ""
    """A value answered in the header `verify_header_name`, for platforms that check the endpoint so."""
    verify_header_name: Header = "x-vercel-verify"
    """The header that carries `verify_header`; Vercel's unless set."""


class Settings(Frozen, frozen=True):
    """The whole configuration."""

    data_dir: Annotated[FilePath, Range(1, 4_095)] = "data"
    """Journal, embedded store and `receiver.json` live here."""
    listen: Address = "127.0.0.1:4318"
    """The drain endpoint: the only public one. Port 0: a free one."""
    admin_listen: Address = "127.0.0.1:9464"
    """Health and metrics."""
    api_listen: Address = "127.0.0.1:8318"
    """Queries."""
    api_hosts: Annotated[tuple[HostName, ...], Range(0, 64)] = ()
    """DNS names under which clients reach the API and the admin port, as behind a proxy.

    IP addresses, `localhost` and this machine's name need no entry.
    """
    api_token: Secret = ""
    """Secret (`api_token_file`); required when `api_listen` is beyond loopback."""
    intakes: Annotated[int, Range(1, 256)] = 1
    """Intake processes; about one a core."""
    insecure: bool = False
    """Listen beyond loopback without credentials or TLS. Said on purpose."""
    behind_proxy: bool = False
    """A proxy in front ends TLS: plain HTTP beyond loopback is then allowed, with credentials."""
    post_root: bool = True
    """`POST /` is the same as the first drain's path, for SDKs that are given a bare URL."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """`auto`: console on a terminal, JSON elsewhere."""
    tls: Tls = Tls()
    store: Store = Store()
    journal: Journal = Journal()
    redelivery: Redelivery = Redelivery()
    ledger: Ledger = Ledger()
    budget: Budget = Budget()
    resolve: Resolve = Resolve()
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    drain: tuple[Drain, ...] = ()
    """`[[drain]]`; none: one open drain, on loopback only."""
