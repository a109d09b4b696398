"""The one door to the core: settings and deliveries in, records and outcomes out.

Never: a look at a span. What the bytes mean is the core's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver._transcode import (  # noqa: TID251 - this is the door
    BUILD_PROFILE,
    COLUMNS,
    SCHEMAS,
    VERSION,
    Commit,
    CoreError,
    Digests,
    DigestTags,
    ExplainedTrace,
    Outcome,
    Policy,
    Record,
    Scan,
    day_runs,
    explain_sampling,
    footer,
    footer_for,
    rewrite,
    scan,
)
from receiver._transcode import commit as _commit  # noqa: TID251 - this is the door
from receiver.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.model import Delivery, SegmentId
    from receiver.settings import Limits, Resolve, SamplingRule, Settings

__all__ = [
    "BUILD_PROFILE",
    "COLUMNS",
    "SCHEMAS",
    "VERSION",
    "Commit",
    "CoreError",
    "DigestTags",
    "Digests",
    "ExplainedTrace",
    "Outcome",
    "Policy",
    "Record",
    "Scan",
    "commit",
    "day_runs",
    "explain_sampling",
    "footer",
    "footer_for",
    "policy",
    "rewrite",
    "scan",
]

AHEAD_S_MAX = 3_600
"""A start time further ahead of its receipt cannot be true."""

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
    """Bind the core to these settings. Raises `OperatorError` naming what makes no sense."""
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
    except CoreError as reason:
        raise OperatorError(str(reason)) from reason


def commit(policy: Policy, deliveries: Sequence[Delivery], segment: SegmentId, digest_key: bytes) -> Commit:
    """Transcode deliveries into one record of this segment. Blocks; the GIL is released."""
    return _commit(policy, deliveries, segment.epoch, segment.seq, digest_key)


def _preset(resolve: Resolve, what: str) -> tuple[str, ...]:
    return (f"resource:{resolve.preset}.{what}Id", f"span:{resolve.preset}.{what}.id")


def _places(spelled: Sequence[str]) -> list[tuple[str, str]]:
    """Split `resource:KEY` and `span:KEY`; the core says which place is unknown."""
    return [(place, key) for place, _, key in (one.partition(":") for one in spelled)]


def _conditions(rule: SamplingRule) -> dict[str, str]:
    wanted = {
        "project": rule.project,
        "environment": rule.environment,
        "service": rule.service,
        "drain": rule.drain,
    }
    return {what: value for what, value in wanted.items() if value is not None}


def _limits(limits: Limits) -> dict[str, int]:
    return {name: getattr(limits, name) for name in _DECODER_LIMITS}
