"""Settings of drains: their credentials, what is kept, and how large a delivery may be."""

from __future__ import annotations

from typing import Annotated, Literal

from receiver.setting_types import (
    GIB,
    KIB,
    MIB,
    TIB,
    Attribute,
    BodyBytes,
    Bytes,
    Frozen,
    Header,
    Millions,
    Range,
    Rate,
    Seconds,
    Secret,
    Thousands,
)


class Budget(Frozen, frozen=True):
    """Failures that the sending platform tolerates before it disables a drain."""

    failed_answers_max: Thousands = 50
    """Deliveries per hour without a 2xx answer."""
    failed_ratio_max: Rate = 0.8
    """Share of such deliveries among all deliveries of the hour."""


class Resolve(Frozen, frozen=True):
    """Attributes that name the project and deployment of a span; the first attribute present is used."""

    preset: Literal["platform", "vercel"] = "platform"
    """Names of the attributes; `vercel` for Vercel's."""
    project: Annotated[tuple[Attribute, ...], Range(0, 16)] = ()
    """In order, each `resource:KEY` or `span:KEY`; replaces the preset's."""
    deployment: Annotated[tuple[Attribute, ...], Range(0, 16)] = ()
    """Like `project`."""


class SamplingRule(Frozen, frozen=True):
    """Conditions under which `rate` applies to a span; the first matching rule is used."""

    project: Attribute | None = None
    """Resolved ProjectId. Not set: any; the same holds for the next three."""
    environment: Attribute | None = None
    """`deployment.environment.name` of the resource, or the platform's name for it."""
    service: Attribute | None = None
    """`service.name` of the resource."""
    drain: Annotated[str, Range(1, 64)] | None = None
    """Name of the drain."""
    rate: Rate = 1.0
    """Share of traces that is kept."""


class Sampling(Frozen, frozen=True):
    """Head sampling. Off by default: everything is kept."""

    mode: Literal["off", "equalizing", "proportional", "hash_seed"] = "off"
    """See docs/sampling.md; `off` keeps everything and records the sampling decisions made upstream."""
    rate: Rate = 1.0
    """Share of traces that is kept where no rule matches."""
    seed: Annotated[int, Range(0, 0xFFFF_FFFF)] = 0
    """For mode `hash_seed`: the Collector's `hash_seed`."""
    rule: tuple[SamplingRule, ...] = ()
    """Ordered rules (`[[sampling.rule]]`)."""


class Limits(Frozen, frozen=True):
    """Limits on each delivery and on all deliveries together."""

    body_bytes_max: BodyBytes = 64 * MIB
    """Body size, before and after decompression. A drain may set its own."""
    inflight_bytes_max: Annotated[Bytes, Range(1 * KIB, 64 * TIB)] = 512 * MIB
    """Bodies being read or decoded, per intake; a quarter for senders not yet authenticated. Above: 503."""
    connections_max: Thousands = 4_096
    """Open connections, per intake. At the limit, the longest idle one is closed for a new one."""
    connections_per_address_max: Thousands | None = None
    """Connections per IPv4 address or IPv6 /64. None: a quarter; no limit on loopback or behind a proxy."""
    admin_connections_max: Thousands = 64
    """Open connections of the admin port. At the limit, the longest idle one is closed for a new one."""
    api_connections_max: Thousands = 256
    """Open connections of the API. At the limit, the longest idle one is closed for a new one."""
    write_timeout_s: Seconds = 60.0
    """A client of the API or admin port that reads nothing of its answer for this long is disconnected."""
    api_spool_bytes_max: Annotated[Bytes, Range(1 * MIB, 64 * TIB)] = 4 * GIB
    """Disk for API answers that clients read more slowly than the store sends them."""
    header_timeout_s: Seconds = 15.0
    """From connect, or from the first byte of a later request, to the end of the headers."""
    keepalive_timeout_s: Seconds = 120.0
    """From an answer to the first byte of the next request on the connection.

    Longer than clients and proxies keep idle connections (60 to 90 s), because some lose a request that they
    send while the connection is being closed.
    """
    tls_handshake_timeout_s: Seconds = 5.0
    """From connect to the end of the handshake."""
    body_grace_s: Seconds = 5.0
    """After this the minimum body speed applies."""
    body_bytes_per_s_min: Annotated[Bytes, Range(1, 1 * GIB)] = 1 * KIB
    """The connection of a slower body is closed."""
    body_timeout_s: Seconds = 60.0
    """The connection of a body that takes longer is closed, whatever its speed."""
    answer_deadline_s: Seconds = 5.0
    """From the last body byte to the answer; after that the answer is 503."""
    stop_grace_s: Seconds = 20.0
    """Time to stop: the store gets it to insert sealed segments, then the intakes to answer and seal."""
    spans_max: Millions = 100_000
    """Spans in one delivery."""
    attributes_max: Thousands = 1_024
    """Attributes of one span, resource, scope, event or link."""
    events_max: Thousands = 1_024
    """Events of one span."""
    links_max: Thousands = 1_024
    """Links of one span."""
    nodes_max: Millions = 4_000_000
    """Attribute values in one delivery, nested values included."""
    resources_max: Millions = 10_000
    """Resources in one delivery."""
    scopes_max: Millions = 10_000
    """Scopes in one delivery."""
    value_depth_max: Annotated[int, Range(1, 1_024)] = 64
    """Depth to which a nested attribute value is kept."""
    key_bytes_max: Annotated[Bytes, Range(1, 16 * MIB)] = 64 * KIB
    """Bytes of an attribute key."""
    text_bytes_max: Annotated[Bytes, Range(1, 1 * GIB)] = 4 * MIB
    """Bytes of one stored text; longer texts are cut."""
    expanded_bytes_max: Annotated[Bytes, Range(1 * KIB, 64 * GIB)] = 512 * MIB
    """Size of a delivery as rows, each with its resource's attributes. Inserting needs 3 times as much."""


class Drain(Frozen, frozen=True):
    """A configured sender."""

    name: Annotated[str, Range(1, 64)]
    """Stored with every span, and a metric label."""
    path: Annotated[str, Range(1, 1_024)] = "/v1/traces"
    """Path that it posts to."""
    header: Header = "authorization"
    """Header with the token; `authorization` expects `Bearer TOKEN`."""
    tokens: Annotated[tuple[Secret, ...], Range(0, 1_000)] = ()
    """Secrets (`token_file`, `token_files`); several for rotation. Empty: no token is required."""
    signature_header: Header = ""
    """Header with the HMAC of the raw body; empty: no signature is required."""
    signature_algorithm: Literal["sha1", "sha256"] = "sha1"
    """Hash algorithm of the HMAC."""
    signature_secrets: Annotated[tuple[Secret, ...], Range(0, 16)] = ()
    """Secrets (`signature_secret_file`, `signature_secret_files`); several for rotation."""
    strict: bool = False
    """Refuse a delivery with 400 if it would be accepted with a warning."""
    acknowledge: Literal["journal", "store"] = "journal"
    """`store`: answer 200 only after ClickHouse has the spans; refused spans are a `partial_success`."""
    body_bytes_max: BodyBytes | None = None
    """Body limit of this drain. None: `limits.body_bytes_max`."""
    dedupe: bool = True
    """Store a delivery once, even if it is sent repeatedly within `redelivery.window_s`."""
    verify_header: Annotated[str, Range(0, 4_096)] = ""
    """Value to answer in the header `verify_header_name`, for platforms that verify endpoints this way."""
    verify_header_name: Header = "x-vercel-verify"
    """Header that carries `verify_header`; the default is Vercel's."""
