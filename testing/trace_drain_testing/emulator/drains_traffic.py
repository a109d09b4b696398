"""Spans for a drain: attributes that the platform adds, filtering, sampling and encoding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from trace_drain_testing.load.template import Template
from trace_drain_testing.load.traffic import Resource, Span
from trace_drain_testing.load.wire import ENCODINGS, json_body_of

Environment = Literal["production", "preview"]
PLATFORM_SCOPE = "platform"
"""Instrumentation scope of the platform's own spans; every other scope is custom."""
KIND_NAMES = ("unspecified", "internal", "server", "client", "producer", "consumer")
DIALECT_LEFT_OUT = frozenset(
    {"flags", "links", "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"}
)
"""Fields of OTLP that the platform's JSON does not have."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sampling rule: the fraction of the matching traces that the drain forwards."""

    rate: float
    environment: Environment | None = None
    path: str = ""
    """Prefix of the request's path."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError("`rate` is not between 0 and 1")

    def matches(self, environment: str, path: str) -> bool:
        return self.environment in {None, environment} and path.startswith(self.path)


class ServiceSpans(NamedTuple):
    project: str
    deployment: str
    environment: Environment
    runtime: Literal["node", "edge"]
    resource: Resource


class Traffic(NamedTuple):
    """Spans that the platform has collected for a delivery."""

    sources: tuple[ServiceSpans, ...]
    half: bytes
    """Random bytes from which the first halves of the trace ids are derived."""
    base_ns: int
    """Time of offset 0."""


def forwarded(traffic: Traffic, rules: Sequence[Rule], seed: str) -> list[Resource]:
    """Return the resources to send, with the platform's attributes, after filtering and sampling."""
    sampled = _kept_traces(traffic, rules, seed)
    resources = [
        source.resource._replace(
            attributes=_attributes(source),
            spans=tuple(
                span._replace(trace_start=trace_start(traffic.half, span.trace_end))
                for span in source.resource.spans
                if span.trace_end in sampled
            ),
        )
        for source in traffic.sources
        if not _is_custom_on_edge(source)
    ]
    return [resource for resource in resources if resource.spans]


def trace_start(half: bytes, trace_half: bytes) -> bytes:
    """Return the first half of a trace id: random in each trace, and the same for all drains."""
    return hashlib.sha256(half + trace_half).digest()[: len(half)]


def encoded(resources: Sequence[Resource], traffic: Traffic, form: Literal["json", "protobuf"]) -> bytes:
    encoding = ENCODINGS["protobuf"] if form == "protobuf" else _DIALECT
    return Template(resources, encoding).body_at(traffic.half, traffic.base_ns)


def _attributes(source: ServiceSpans) -> dict[str, Any]:
    return {
        **source.resource.attributes,
        "platform.projectId": source.project,
        "platform.deploymentId": source.deployment,
        "deployment.environment.name": source.environment,
    }


def _is_custom_on_edge(source: ServiceSpans) -> bool:
    return source.runtime == "edge" and source.resource.scope[0] != PLATFORM_SCOPE


def _kept_traces(traffic: Traffic, rules: Sequence[Rule], seed: str) -> set[bytes]:
    """Return the sampled traces; each trace is decided once for all of its services."""
    decided: dict[bytes, bool] = {}
    for trace_half, environment, path in _requests(traffic):
        rule = next((rule for rule in rules if rule.matches(environment, path)), None)
        rate = rule.rate if rule else float(not rules)
        decided.setdefault(trace_half, _share(traffic.half + trace_half, seed) < rate)
    return {trace_half for trace_half, is_kept in decided.items() if is_kept}


def _requests(traffic: Traffic) -> Iterator[tuple[bytes, str, str]]:
    """Yield trace, environment and path of each request, from its root span if it has one."""
    spans = [(source, span) for source in traffic.sources for span in source.resource.spans]
    for source, span in sorted(spans, key=lambda each: bool(each[1].parent_id)):
        yield span.trace_end, source.environment, _path(span)


def _path(span: Span) -> str:
    return str(span.attributes.get("url.path", ""))


def _share(trace_id: bytes, seed: str) -> float:
    """Return a number from 0 to 1 that depends on the trace only."""
    digest = hashlib.sha256(seed.encode() + trace_id).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)


def _in_dialect(span: dict[str, Any]) -> dict[str, Any]:
    """Return the span as the platform encodes it: the kind as a word, and no empty field."""
    written = {name: value for name, value in span.items() if name not in DIALECT_LEFT_OUT and value != []}
    written["kind"] = KIND_NAMES[span["kind"]]
    if not span["status"]["code"]:
        del written["status"]
    return written


_DIALECT = ENCODINGS["json"]._replace(body=lambda resources: json_body_of(resources, _in_dialect))
