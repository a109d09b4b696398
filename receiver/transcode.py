"""Interface to the Rust core: takes settings and deliveries, returns records and outcomes.

Never: inspects a span. Only the core interprets the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver._transcode import (  # noqa: TID251 - the only module that may import the core
    BUILD_PROFILE,
    COLUMNS,
    FOOTER_BYTES,
    HEAD_BYTES,
    SCHEMAS,
    VERSION,
    Commit,
    CoreError,
    Digests,
    DigestTags,
    ExplainedTrace,
    FastBatch,
    FastConnection,
    FastPath,
    FastSender,
    KnownHead,
    Outcome,
    Policy,
    Record,
    Scan,
    day_runs,
    explain_sampling,
    footer,
    footer_counts,
    footer_for,
    is_newer,
    record_head,
    rewrite,
    scan,
)
from receiver._transcode import PatternSet as _PatternSet  # noqa: TID251 - the only module that may import the core
from receiver._transcode import commit as _commit  # noqa: TID251 - the only module that may import the core
from receiver.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.model import Delivery, SegmentId
    from receiver.settings import Limits, Resolve, SamplingRule, Settings

__all__ = [
    "BUILD_PROFILE",
    "COLUMNS",
    "FOOTER_BYTES",
    "HEAD_BYTES",
    "SCHEMAS",
    "VERSION",
    "Commit",
    "CoreError",
    "DigestTags",
    "Digests",
    "ExplainedTrace",
    "FastBatch",
    "FastConnection",
    "FastPath",
    "FastSender",
    "KnownHead",
    "Outcome",
    "PatternSet",
    "Policy",
    "Record",
    "Scan",
    "commit",
    "day_runs",
    "explain_sampling",
    "footer",
    "footer_counts",
    "footer_for",
    "is_newer",
    "policy",
    "record_head",
    "rewrite",
    "scan",
]

AHEAD_S_MAX = 3_600
"""Maximum distance of a start time after its receipt. A later start time is treated as wrong."""

_DECODER_LIMITS = (
    "expanded_bytes_max",
    "spans_max",
    "attributes_max",
    "events_max",
    "links_max",
    "nodes_max",
    "resources_max",
    "scopes_max",
    "value_depth_max",
    "key_bytes_max",
    "text_bytes_max",
)


def policy(settings: Settings) -> Policy:
    """Configure the core from these settings. Raises `OperatorError` for a value that the core refuses."""
    sampling = settings.sampling
    try:
        return Policy(
            project=_places(settings.resolve.project or _preset(settings.resolve, "project")),
            deployment=_places(settings.resolve.deployment or _preset(settings.resolve, "deployment")),
            retention_days=settings.store.retention_days,
            late_margin_days=settings.store.late_margin_days,
            ahead_s_max=AHEAD_S_MAX,
            sampling_mode=sampling.mode,
            sampling_rate=sampling.rate,
            sampling_seed=sampling.seed,
            sampling_rules=[(_conditions(rule), rule.rate) for rule in sampling.rule],
            codec=settings.journal.codec,
            limits=_limits(settings.limits),
        )
    except CoreError as error:
        raise OperatorError(str(error)) from error


def commit(
    policy: Policy, deliveries: Sequence[Delivery | FastBatch], segment: SegmentId, digest_key: bytes
) -> Commit:
    """Transcode deliveries into one record of this segment. Blocks; the GIL is released."""
    return _commit(policy, deliveries, segment.epoch, segment.seq, digest_key)


def _preset(resolve: Resolve, attribute: str) -> tuple[str, ...]:
    return (f"resource:{resolve.preset}.{attribute}Id", f"span:{resolve.preset}.{attribute}.id")


def _places(places: Sequence[str]) -> list[tuple[str, str]]:
    """Split `resource:KEY` and `span:KEY`; the core reports an unknown place."""
    return [(place, key) for place, _, key in (text.partition(":") for text in places)]


def _conditions(rule: SamplingRule) -> dict[str, str]:
    conditions = {
        "project": rule.project,
        "environment": rule.environment,
        "service": rule.service,
        "drain": rule.drain,
    }
    return {name: value for name, value in conditions.items() if value is not None}


def _limits(limits: Limits) -> dict[str, int]:
    return {name: getattr(limits, name) for name in _DECODER_LIMITS}


class PatternSet:
    """Regular expressions of the settings, searched together in linear time, in any case of letters."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Raise `OperatorError` for a pattern that is not valid, or that matches the empty text."""
        try:
            self._set = _PatternSet(patterns)
        except CoreError as error:
            raise OperatorError(str(error)) from error

    def is_found_in(self, text: str) -> bool:
        return self._set.is_match(text)
