"""Settings: name, type, range, default and meaning of each.

Invariant: a settings object is complete, checked and frozen before any process starts. Every setting declares
its range; `config/ranges.py` checks every configured value against it.
Never: environment reads, file reads or defaults outside this module and its loader.
"""

from __future__ import annotations

from typing import Annotated, Literal

from receiver.delivery_settings import Budget, Drain, Limits, Resolve, Sampling, SamplingRule
from receiver.setting_types import (
    CERTIFICATE_DAYS_MIN,
    DAY_S,
    GIB,
    KIB,
    MIB,
    TIB,
    Address,
    Attribute,
    BodyBytes,
    Bytes,
    FilePath,
    Frozen,
    Header,
    HostName,
    Millions,
    OptionalAddress,
    Range,
    Role,
    Seconds,
    Secret,
    Thousands,
)

__all__ = [
    "CERTIFICATE_DAYS_MIN",
    "DAY_S",
    "GIB",
    "KIB",
    "MIB",
    "Access",
    "Budget",
    "Drain",
    "Frozen",
    "Journal",
    "Ledger",
    "Limits",
    "Platform",
    "Proxy",
    "Range",
    "Redelivery",
    "Resolve",
    "RetentionRule",
    "Role",
    "Sampling",
    "SamplingRule",
    "Settings",
    "Store",
    "Tls",
    "User",
    "Webhook",
]
"""What other modules import from here, wherever it is declared."""


class Tls(Frozen, frozen=True):
    """Certificates of the drain endpoint. Reloaded when the files change or on SIGHUP.

    Turning TLS or client certificates on or off needs a restart.
    """

    cert_file: FilePath = ""
    """PEM chain; empty: plain HTTP."""
    key_file: FilePath = ""
    """PEM key."""
    client_ca_file: FilePath = ""
    """PEM of the CAs that must have signed client certificates; empty: no client certificate is required."""
    self_signed: bool = False
    """Create a certificate for localhost at start, to try TLS out. Clients must trust `DATA/tls/ca.crt`."""


class RetentionRule(Frozen, frozen=True):
    """A shorter retention for the spans of a project, of a drain, or of a project at a drain."""

    days: Annotated[int, Range(1, 20_000)]
    """Days after which the spans are deleted, fewer than `store.retention_days`."""
    project: Annotated[str, Range(1, 256)] | None = None
    """Resolved ProjectId. Not set: any, if `drain` is set."""
    drain: Annotated[str, Range(1, 64)] | None = None
    """Name of the drain. Not set: any."""


class Store(Frozen, frozen=True):
    """The ClickHouse store."""

    url: Annotated[str, Range(1, 2_048)] = "embedded"
    """`embedded`, or `http(s)://user@host:port/database`."""
    password: Secret = ""
    """Secret (`password_file` in the file). Never printed."""
    database: Annotated[str, Range(1, 64)] = "otel"
    """Database of the table `otel_traces`; a path in the URL takes precedence."""
    cluster: Annotated[str, Range(0, 64)] = ""
    """Name of the ClickHouse cluster on whose nodes the tables are. Empty: on the server of the URL only."""
    storage_policy: Annotated[str, Range(0, 64)] = ""
    """Storage policy of a server, which its table of spans is created with. Empty: the server's default."""
    retention_days: Annotated[int, Range(0, 20_000)] = 30
    """Days until spans are deleted; 0: never."""
    retention_rule: tuple[RetentionRule, ...] = ()
    """Shorter retentions (`[[store.retention_rule]]`) of projects and drains, at most 32; embedded only."""
    late_margin_days: Annotated[int, Range(0, 20_000)] = 3
    """Spans that would be deleted within this many days are stored under their receive time."""
    memory_bytes_max: Annotated[Bytes, Range(256 * MIB, 64 * TIB)] = 4 * GIB
    """Memory limit of the embedded engine."""
    disk_bytes_max: Annotated[Bytes, Range(0, 1_024 * TIB)] = 0
    """Size of the embedded table of spans above which its oldest day is deleted; 0: no limit."""
    insert_timeout_s: Annotated[int, Range(1, 3_600)] = 120
    """After this the outcome of an INSERT is unknown; the receiver counts its rows to find out."""
    promoted_attributes: Annotated[tuple[Attribute, ...], Range(0, 32)] = ()
    """Attributes that get a column, so that filters need not read all attributes.

    Each is `span:KEY`, `resource:KEY` or `event:KEY`; after a space follow older spellings of the key, which
    fill the same column. Added to the standard ones, which docs/query.md lists.
    """
    rollup: bool = True
    """Derive hourly counts of spans, which answer queries over many hours. Needs ClickHouse 25.6."""
    rollup_closing_age_s: Annotated[int, Range(60, 86_400)] = 600
    """Time after the end of an hour until it is rolled up. Spans that arrive later are still counted."""


class Journal(Frozen, frozen=True):
    """The journal of deliveries that are acknowledged and not yet stored."""

    bytes_max: Annotated[Bytes, Range(256 * KIB, 1_024 * TIB)] = 8 * GIB
    """Maximum size of the journal on disk; at the limit senders get 503."""
    disk_free_min: Annotated[Bytes, Range(4 * MIB, 1_024 * TIB)] = 2 * GIB
    """Free disk space below which senders get 503; the embedded engine stops earlier.

    Never 0, because freeing space needs some space too.
    """
    segment_rows_max: Annotated[int, Range(1, 100_000_000)] = 200_000
    """A segment is sealed at this many rows."""
    segment_bytes_max: Annotated[Bytes, Range(4 * KIB, 1 * GIB)] = 32 * MIB
    """A segment is sealed at this size."""
    segment_age_ms_max: Annotated[int, Range(0, 600_000)] = 1_000
    """A segment is sealed at this age, once its predecessor was tried. Lower: fresher data, more INSERTs."""
    segment_growth_ms_max: Annotated[int, Range(0, 600_000)] = 3_000
    """Age of a segment that fills fast: a third of its maximum rows or bytes by then. 0: no such delay.

    Under load this gives larger INSERTs, and each span is merged less often.
    """
    codec: Literal["lz4", "zstd"] = "lz4"
    """Compression of records: lz4 saves CPU here, zstd saves bandwidth to the server."""


class Redelivery(Frozen, frozen=True):
    """The deduplication window: how long a repeated delivery is recognised."""

    window_s: Annotated[float, Range(1, 366 * DAY_S)] = 86_400.0
    """Length of the window, in time the receiver was running; setting the clock does not change it."""
    entries_max: Annotated[int, Range(1_000, 1_000_000_000)] = 20_000_000
    """Deliveries remembered, each up to 48 bytes of disk and 11 of memory. Above: the window shrinks."""


class Ledger(Frozen, frozen=True):
    """Detail of the ledger. Above these limits, counts are merged."""

    hours_max: Annotated[int, Range(1, 87_600)] = 2_160
    """Hours with deliveries that are kept apart; 2160 are 90 days. Older hours are merged."""
    projects_max: Thousands = 1_000
    """Lines per hour, one for each drain and project; further projects are counted as `(other)`."""
    lines_max: Annotated[int, Range(1, 100_000_000)] = 200_000
    """Lines in total, 0.5 KiB of memory each; above, the oldest hours are no longer split by project."""


Projects = Annotated[tuple[Annotated[str, Range(1, 256)], ...], Range(0, 64)]


class User(Frozen, frozen=True):
    """A person or program that may use the API and the pages."""

    name: Annotated[str, Range(1, 64)]
    """Shown on the pages and in the log."""
    token: Annotated[Secret, Range(16, 64 * KIB)]
    """Secret (`token_file`) for the page `/login` and for `Authorization: Bearer TOKEN`."""
    role: Role = "viewer"
    """`viewer`: read; `operator`: also replay and drop dead letters, rebuild rollups; `admin`: everything."""
    projects: Projects = ()
    """Ids of the only projects whose spans the user may see, at most 64. Empty: all.

    With a list, what cannot be limited to projects is refused: SQL, the ledger, dead letters, rollups, and
    the pages about the receiver.
    """


class Proxy(Frozen, frozen=True):
    """A proxy in front of the API that authenticates users."""

    user_header: Header = ""
    """Header with the name of the user, which the proxy must set or remove in every request. Empty: none."""
    allowed_peers: Annotated[tuple[Annotated[str, Range(1, 64)], ...], Range(0, 64)] = ()
    """Addresses of the proxy, like `10.0.0.7` or `10.0.0.0/24`; from others the header is ignored."""
    role: Role = "viewer"
    """Role of every user that the proxy names."""
    projects: Projects = ()
    """The same as `api.user.projects`, for every user that the proxy names."""


class Access(Frozen, frozen=True):
    """Users of the API and the pages, besides the holder of `api_token`, and what they may do."""

    enabled: bool = True
    """Serve the API and the pages, and keep rollups. Without them, the receiver only stores spans."""
    sql: bool = False
    """Answer statements of SQL, read-only and with limits: docs/query.md says what is allowed."""
    clickhouse_listen: OptionalAddress = ""
    """Endpoint for clients of ClickHouse's HTTP interface, over the embedded store. Empty: none."""
    clickhouse_token: Secret = ""
    """Secret (`clickhouse_token_file`) that these clients send as their password, for any user.

    Required when `clickhouse_listen` is beyond loopback.
    """
    session_s: Annotated[float, Range(60, 366 * DAY_S)] = 43_200.0
    """Time from a login on the page `/login` to the next one."""
    session_key: Annotated[Secret, Range(32, 64 * KIB)] = ""
    """Random text (`session_key_file`), at least 32 characters, that signs the sessions of the pages.

    Receivers behind a load balancer need the same, so that a login is valid on all. Empty: a random key.
    """
    span_metrics: bool = False
    """Serve metrics of spans to Prometheus at `/api/v1/metrics/spans`: see docs/span-metrics.md."""
    span_metrics_series_max: Annotated[int, Range(100, 50_000)] = 2_000
    """Sets of label values that these metrics keep apart; further requests are counted as `(other)`."""
    user: tuple[User, ...] = ()
    """Users (`[[api.user]]`), at most 64."""
    proxy: Proxy = Proxy()


class Webhook(Frozen, frozen=True):
    """Webhooks of the hosting platform, received on the listener of the drains."""

    path: Annotated[str, Range(0, 1_024)] = ""
    """Path that the platform posts to, different from those of the drains. Empty: no webhooks."""
    secrets: Annotated[tuple[Secret, ...], Range(0, 16)] = ()
    """Secrets (`secret_file`, `secret_files`), required with a path; several for rotation."""
    signature_header: Annotated[str, Range(1, 256)] = "x-platform-signature"
    """Header with the HMAC-SHA1 of the raw body, in hex."""
    body_bytes_max: BodyBytes = 256 * KIB
    """Size of one webhook."""
    waiting_max: Millions = 10_000
    """Webhooks that are acknowledged and not yet applied. At the limit the platform gets 503."""
    waiting_bytes_max: Annotated[Bytes, Range(1 * KIB, 1 * TIB)] = 64 * MIB
    """Size of these webhooks together. At the limit the platform gets 503."""
    remembered_s: Annotated[float, Range(2 * DAY_S, 366 * DAY_S)] = 7 * DAY_S
    """Time for which an applied webhook is recognised when it is sent again; platforms retry for a day."""
    project_retention_days: Annotated[int, Range(0, 20_000)] = 30
    """Days from the removal of a project until its spans are due for deletion by an operator."""


class PlatformEvents(Frozen, frozen=True):
    """Events of deployments: what is fetched from the platform's API, and how long it is kept."""

    retention_days: Annotated[int, Range(0, 20_000)] = 30
    """Days from the fetch until events are deleted; 0: never."""
    followed_max: Annotated[int, Range(0, 64)] = 4
    """Maximum number of live deployments whose events are followed. 0: events are fetched for pages only."""
    request_attributes: Annotated[tuple[Annotated[str, Range(1, 1_024)], ...], Range(0, 16)] = (
        "platform.requestId",
        "platform.id",
        "http.request.header.x-request-id",
        "http.response.header.x-request-id",
        "faas.invocation_id",
    )
    """Attributes of spans whose value is the id of a request in events: their `requestId` or `platformId`."""


Pattern = Annotated[str, Range(1, 256)]
"""A regular expression, in the syntax of the Rust crate regex: no back references, no assertions."""
Price = Annotated[float, Range(0, 1_000_000)]


class Explain(Frozen, frozen=True):
    """Explanations of traces by a language model, through the platform's gateway."""

    model: Annotated[str, Range(0, 256)] = ""
    """Name of the model, `PROVIDER/NAME`. Empty: nothing is sent."""
    providers: Annotated[tuple[Attribute, ...], Range(0, 16)] = ()
    """Providers that the gateway tries, in this order. Empty: the gateway chooses."""
    image: bool = True
    """Send the waterfall of the trace as an image without texts, too. Needs a model that reads images."""
    tokens_max: Annotated[int, Range(10_000, 10_000_000)] = 60_000
    """Tokens that one explanation may send in all its requests together, by the receiver's estimate."""
    input_price: Price | None = None
    """Price of a million tokens that are sent, in any currency. Not set: no cost is shown."""
    output_price: Price | None = None
    """Price of a million tokens of answers."""
    redact_keys: Annotated[tuple[Pattern, ...], Range(0, 64)] = ()
    """Regular expressions for keys of attributes whose values are never sent, in addition to the rules of the
    receiver: docs/platform.md."""
    redact_patterns: Annotated[tuple[Pattern, ...], Range(0, 64)] = ()
    """Regular expressions for texts that are never sent, not even in part, in addition to those rules."""


class Platform(Frozen, frozen=True):
    """The hosting platform whose deployments are traced: its API and its gateway to language models."""

    base_url: Annotated[str, Range(0, 2_048)] = ""
    """Address of the platform's API. Empty: commands need `--base-url`."""
    gateway_url: Annotated[str, Range(0, 2_048)] = ""
    """Address of the platform's gateway. Empty: nothing is sent to language models."""
    token: Secret = ""
    """Access token (`token_file`) of the platform's API."""
    team: Attribute = ""
    """Id of the team that owns the token: sent as `teamId` with each call. Empty: `slug`, or no team."""
    slug: Attribute = ""
    """Slug of that team, for installations whose team id is not known."""
    api_key: Secret = ""
    """API key (`api_key_file`) of the gateway."""
    client_id: Attribute = ""
    """Id of the integration on the platform. Empty: the page `/platform` offers no installation."""
    client_secret: Secret = ""
    """Secret (`client_secret_file`) of the integration."""
    install_url: Annotated[str, Range(0, 2_048)] = ""
    """Address of the platform where a user installs the integration."""
    redirect_url: Annotated[str, Range(0, 2_048)] = ""
    """Address of this receiver's page `/platform/installed`, as the integration is configured with it."""
    encryption_key: Annotated[Secret, Range(32, 64 * KIB)] = ""
    """Random text (`encryption_key_file`), at least 32 characters, that encrypts stored access tokens.

    Empty: the tokens are in files that only the receiver's user can read.
    """
    encryption_key_previous: Annotated[Secret, Range(32, 64 * KIB)] = ""
    """The key before (`encryption_key_previous_file`), while it is rotated.

    At the start, tokens that it encrypted are encrypted with `encryption_key`.
    """
    timeout_s: Seconds = 30.0
    """Time for one call, or between two lines of a streamed answer."""
    webhook: Webhook = Webhook()
    events: PlatformEvents = PlatformEvents()
    explain: Explain = Explain()


class Settings(Frozen, frozen=True):
    """The whole configuration."""

    data_dir: Annotated[FilePath, Range(1, 4_095)] = "data"
    """Directory of the journal, the embedded store and `receiver.json`."""
    listen: Address = "127.0.0.1:4318"
    """The drain endpoint, the only public one. Port 0: any free port."""
    admin_listen: Address = "127.0.0.1:9464"
    """The admin port: health and metrics."""
    api_listen: Address = "127.0.0.1:8318"
    """The API: queries."""
    api_hosts: Annotated[tuple[HostName, ...], Range(0, 64)] = ()
    """DNS names under which clients reach the API and the admin port, for example behind a proxy.

    IP addresses, `localhost` and this machine's name need no entry.
    """
    api_token: Secret = ""
    """Secret (`api_token_file`) of the role `admin`, which the commands use too.

    Required when `api_listen` is beyond loopback, unless `[[api.user]]` or `api.proxy.user_header` is set.
    """
    intakes: Annotated[int, Range(1, 256)] = 1
    """Number of intake processes; about one per core."""
    insecure: bool = False
    """Allow listening beyond loopback without credentials or TLS."""
    behind_proxy: bool = False
    """A proxy in front terminates TLS: allows plain HTTP beyond loopback, with credentials."""
    post_root: bool = True
    """Treat `POST /` as the first drain's path, for SDKs configured with a bare URL."""
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
    api: Access = Access()
    platform: Platform = Platform()
    drain: tuple[Drain, ...] = ()
    """`[[drain]]`. None: one drain without credentials, on loopback only."""
