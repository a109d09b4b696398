"""Every knob: name, type, default, and what turning it costs.

Keeps: a settings object is complete, checked and frozen before any process starts.
Never: an environment read, a file read or a default outside this room and its loader.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

Bytes = Annotated[int, Meta(ge=0, extra={"form": "bytes"})]
"""A size: a whole number, or as `8GiB` or `512 MB`."""
SomeBytes = Annotated[int, Meta(ge=1, extra={"form": "bytes"})]
"""A size that cannot be nothing."""
Secret = Annotated[str, Meta(extra={"form": "secret"})]
"""Never printed; `…_file` names a file that holds it."""
FilePath = Annotated[str, Meta(extra={"form": "path"})]
"""Relative to the configuration file that names it, else to the working directory."""
Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
Seconds = Annotated[float, Meta(gt=0)]
Rate = Annotated[float, Meta(ge=0, le=1)]


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
    """Make a certificate for localhost at start, to try TLS out."""


class Store(Frozen, frozen=True):
    """Where spans rest."""

    url: str = "embedded"
    """`embedded`, or `http(s)://user@host:port/database`."""
    password: Secret = ""
    """Secret (`password_file` in the file). Never printed."""
    database: str = "otel"
    """Database that holds `otel_traces`; a path in the URL wins."""
    retention_days: NotNegative = 30
    """Days until spans are deleted; 0: for ever."""
    late_margin_days: NotNegative = 3
    """Spans that would be deleted within so many days are stored under their receive time."""
    memory_bytes_max: Bytes = 4 * GIB
    """What the embedded engine may take."""
    insert_timeout_s: Count = 120
    """After this an INSERT's outcome is unknown and is counted."""


class Journal(Frozen, frozen=True):
    """What is promised and not yet stored."""

    bytes_max: Bytes = 8 * GIB
    """Disk the journal may hold before senders are told to wait (503)."""
    disk_free_min: Bytes = 2 * GIB
    """Free disk below which senders are told to wait, 4 MiB or more; the embedded engine stops earlier."""
    segment_rows_max: Count = 200_000
    """Rows that seal a segment."""
    segment_bytes_max: Bytes = 32 * MIB
    """Bytes that seal a segment."""
    segment_age_ms_max: NotNegative = 1_000
    """Age that seals a segment once its predecessor is stored. Freshness costs INSERTs."""
    codec: Literal["lz4", "zstd"] = "lz4"
    """Compression of blocks: lz4 is cheaper here, zstd on the wire to the server."""


class Redelivery(Frozen, frozen=True):
    """How long the same delivery is recognised when it comes again."""

    window_s: Seconds = 86_400.0
    """Of time during which the receiver ran; a clock that is set changes nothing."""
    entries_max: Count = 20_000_000
    """Deliveries remembered, at up to 48 bytes of disk and 4 of memory. More: the window is shortened."""


class Ledger(Frozen, frozen=True):
    """How finely it is kept what became of every span. What is too much is counted together."""

    hours_max: Count = 2_160
    """Hours in which something was received: 90 days. Older ones are added up."""
    projects_max: Count = 1_000
    """Lines in an hour, one for each drain and project; the other projects are counted as `(other)`."""
    lines_max: Count = 200_000
    """Lines altogether, 0.5 KiB of memory each; beyond, the oldest hours lose their projects."""


class Budget(Frozen, frozen=True):
    """How many failures the platform that sends forgives a drain."""

    failed_answers_max: Count = 50
    """Deliveries within an hour that were not answered 2xx."""
    failed_ratio_max: Rate = 0.8
    """Their share of all deliveries of the hour."""


class Resolve(Frozen, frozen=True):
    """How the project and deployment of a span are found: the first attribute that is there wins."""

    preset: Literal["platform", "vercel"] = "platform"
    """`vercel` for that spelling of the attributes."""
    project: tuple[str, ...] = ()
    """In order, each `resource:KEY` or `span:KEY`; replaces the preset's."""
    deployment: tuple[str, ...] = ()
    """As `project`."""


class SamplingRule(Frozen, frozen=True):
    """What a trace must be for `rate` to hold; the first rule that matches wins."""

    project: str | None = None
    """ProjectId, as resolved; not given: any. So for the three below."""
    environment: str | None = None
    """`deployment.environment.name` of the resource, or the platform's spelling of it."""
    service: str | None = None
    """`service.name` of the resource."""
    drain: str | None = None
    """Name of the drain."""
    rate: Rate = 1.0
    """0 to 1."""


class Sampling(Frozen, frozen=True):
    """Head sampling. Off by default: everything is kept."""

    mode: Literal["off", "equalizing", "proportional", "hash_seed"] = "off"
    """See docs/sampling.md; `off` keeps everything and records what upstream said."""
    rate: Rate = 1.0
    """0 to 1, where no rule matches."""
    seed: Seed = 0
    """For `hash_seed`: the Collector's `hash_seed`."""
    rule: tuple[SamplingRule, ...] = ()
    """Ordered rules (`[[sampling.rule]]`)."""


class Limits(Frozen, frozen=True):
    """Ceilings on one delivery and on all of them together."""

    body_bytes_max: Bytes = 64 * MIB
    """Body, before and after unpacking. A drain may set its own."""
    inflight_bytes_max: Bytes = 512 * MIB
    """Bodies being read or decoded, per intake; those of senders not yet known, a quarter. Over it: 503."""
    connections_max: Count = 4_096
    """Open connections, per intake. One that has sent nothing yet makes room for a newcomer."""
    connections_per_address_max: Count | None = None
    """Of them, from one IPv4 address or IPv6 /64. None: a quarter; no cap for loopback and behind a proxy."""
    header_timeout_s: Seconds = 15.0
    """From connect, or the end of an answer, to the end of the headers."""
    tls_handshake_timeout_s: Seconds = 5.0
    """From connect to the end of the handshake."""
    body_grace_s: Seconds = 5.0
    """After this the floor on body speed applies."""
    body_bytes_per_s_min: SomeBytes = 1 * KIB
    """A slower body closes the connection."""
    body_timeout_s: Seconds = 60.0
    """A body that takes longer closes the connection, however fast it is."""
    answer_deadline_s: Seconds = 5.0
    """From the last body byte to the answer; passed: 503."""
    stop_grace_s: Seconds = 20.0
    """What a stopping receiver gives to work in flight and to handing over."""
    spans_max: Count = 100_000
    """Spans in one delivery."""
    attributes_max: Count = 1_024
    """Attributes of one span, resource, scope, event or link."""
    events_max: Count = 1_024
    """Events of one span."""
    links_max: Count = 1_024
    """Links of one span."""
    nodes_max: Count = 4_000_000
    """Attribute values, nested ones counted, in one delivery."""
    resources_max: Count = 10_000
    """Resources in one delivery."""
    scopes_max: Count = 10_000
    """Scopes in one delivery."""
    value_depth_max: Count = 64
    """Nesting of an attribute value that is kept."""
    key_bytes_max: Bytes = 64 * KIB
    """Bytes of an attribute key."""
    text_bytes_max: Bytes = 4 * MIB
    """Bytes of one stored text; longer ones are cut."""
    expanded_bytes_max: Bytes = 512 * MIB
    """Bytes of a delivery as rows, each with what its resource says. Inserting takes thrice that."""


class Drain(Frozen, frozen=True):
    """A configured sender."""

    name: str
    """Stored with every span, and a metric label."""
    path: str = "/v1/traces"
    """Where it posts."""
    header: str = "authorization"
    """The header that carries the token; `authorization` expects `Bearer TOKEN`."""
    tokens: tuple[Secret, ...] = ()
    """Secrets (`token_file`, `token_files`); several for rotation. Empty: no token is asked for."""
    signature_header: str = ""
    """The header that carries the HMAC of the raw body; empty: none is asked for."""
    signature_algorithm: Literal["sha1", "sha256"] = "sha1"
    """Of the HMAC."""
    signature_secrets: tuple[Secret, ...] = ()
    """Secrets (`signature_secret_file`, `signature_secret_files`); several for rotation."""
    strict: bool = False
    """Refuse with 400 whatever would be accepted with a warning."""
    acknowledge: Literal["journal", "store"] = "journal"
    """`store`: the 200 waits until ClickHouse has the spans."""
    body_bytes_max: Bytes | None = None
    """Body limit of this drain; none: `limits.body_bytes_max`."""
    dedupe: bool = True
    """Store a delivery once, however often it comes within `redelivery.window_s`."""
    verify_header: str = ""
    """A value answered in `x-vercel-verify`, for platforms that check the endpoint so."""


class Settings(Frozen, frozen=True):
    """The whole configuration."""

    data_dir: FilePath = "data"
    """Journal, embedded store and `receiver.json` live here."""
    listen: str = "127.0.0.1:4318"
    """The drain endpoint: the only public one. Port 0: a free one."""
    admin_listen: str = "127.0.0.1:9464"
    """Health and metrics."""
    api_listen: str = "127.0.0.1:8318"
    """Queries."""
    api_token: Secret = ""
    """Secret (`api_token_file`); required when `api_listen` is beyond loopback."""
    intakes: Count = 1
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
