"""Tests of the Python interface of the core; the core has its own tests."""

from __future__ import annotations

import json

import pytest

from receiver import transcode
from receiver.errors import OperatorError
from receiver.journal.frame import answers_of
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import Limits, Resolve, Sampling, SamplingRule, Settings, Store
from tests.support.segments import DIGEST_KEY

SEGMENT = SegmentId(epoch=2**63 + 1, seq=7)
RECEIVED_AT_NS = 1_800_000_000_123_456_789


def delivery(*spans: dict[str, object], resource: dict[str, str] | None = None) -> Delivery:
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in (resource or {}).items()]
    request = {
        "resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": list(spans)}]}]
    }
    return Delivery(
        drain="drain",
        body=json.dumps(request).encode(),
        content_kind=ContentKind.JSON,
        encodings=(),
        received_at_ns=RECEIVED_AT_NS,
        strict=False,
        body_bytes_max=1 << 20,
    )


def span(trace_id: str = "5b8efff798038103d269b633813fc60c", **fields: object) -> dict[str, object]:
    return {
        "traceId": trace_id,
        "spanId": "eee19b7ec3c1b174",
        "startTimeUnixNano": str(RECEIVED_AT_NS),
        **fields,
    }


def segment_of(*deliveries: Delivery) -> bytes:
    policy = transcode.policy(Settings())
    records = b"".join(
        transcode.commit(policy, [delivery], SEGMENT, DIGEST_KEY).record for delivery in deliveries
    )
    return records + transcode.footer(records)


@pytest.mark.parametrize(
    ("settings", "sent", "verdict", "is_journaled"),
    [
        pytest.param(Settings(), [span()], "accepted", True, id="stored"),
        pytest.param(
            Settings(sampling=Sampling(mode="equalizing", rate=0.0)),
            [span()],
            "accepted",
            True,
            id="sampled out",
        ),
        pytest.param(
            Settings(sampling=Sampling(mode="equalizing", rate=0.0)),
            [span(), span("")],
            "accepted",
            True,
            id="sampled out and rejected",
        ),
        pytest.param(Settings(), [span("")], "malformed", False, id="all spans rejected"),
        pytest.param(Settings(), [], "accepted", False, id="no spans"),
    ],
)
def test_accepted_delivery_without_rows_is_journaled_for_the_ledger(
    settings: Settings, sent: list[dict[str, object]], verdict: str, *, is_journaled: bool
) -> None:
    committed = transcode.commit(transcode.policy(settings), [delivery(*sent)], SEGMENT, DIGEST_KEY)

    answered = [
        answer for record in transcode.scan(committed.record).records for answer in answers_of(record)
    ]
    assert committed.outcomes[0].verdict == verdict
    assert len(answered) == is_journaled
    for answer in answered:
        tally = answer.tallies[0]
        assert tally.received == len(sent) == tally.stored + tally.sampled_out + tally.rejected
        assert answer.rows == tally.stored


def test_group_becomes_a_single_record_with_an_outcome_per_delivery() -> None:
    committed = transcode.commit(
        transcode.policy(Settings()), [delivery(span(), span("")), delivery(span(""))], SEGMENT, DIGEST_KEY
    )

    assert committed.rows == 1
    assert [(outcome.verdict, outcome.stored, outcome.rejected) for outcome in committed.outcomes] == [
        ("accepted", 1, 1),
        ("malformed", 0, 1),
    ]
    assert committed.outcomes[0].message == (
        "rejected (1x, first at span 1): span without a trace id; 16 bytes are required"
    )
    assert committed.outcomes[0].reasons == [("trace_id_missing", 1)]


def test_rewritten_segment_is_sealed_and_has_the_kept_rows() -> None:
    segment = segment_of(delivery(span()), delivery(span(), span()))

    rewritten = transcode.rewrite(segment, [(0, 1), (2, 3)], "zstd", 1_000)

    scan = transcode.scan(rewritten)
    assert ([record.rows for record in scan.records], scan.sealed) == ([2], True)


@pytest.mark.parametrize(
    ("keep", "codec"),
    [
        pytest.param([(0, 2)], "lz4", id="beyond the last row"),
        pytest.param([(1, 1), (0, 1)], "lz4", id="not ascending"),
        pytest.param([(0, 1)], "brotli", id="unknown codec"),
    ],
)
def test_invalid_rewrite_is_refused(keep: list[tuple[int, int]], codec: str) -> None:
    with pytest.raises(transcode.CoreError):
        transcode.rewrite(segment_of(delivery(span())), keep, codec, 1_000)


@pytest.mark.parametrize(
    ("resolve", "resource", "unresolved"),
    [
        pytest.param(Resolve(), {"platform.projectId": "p"}, 0, id="default key"),
        pytest.param(Resolve(), {"vercel.projectId": "p"}, 1, id="unknown key"),
        pytest.param(Resolve(preset="vercel"), {"vercel.projectId": "p"}, 0, id="key of a preset"),
        pytest.param(Resolve(project=("resource:k8s:app",)), {"k8s:app": "p"}, 0, id="key with a colon"),
    ],
)
def test_project_is_read_from_the_configured_attribute(
    resolve: Resolve, resource: dict[str, str], unresolved: int
) -> None:
    policy = transcode.policy(Settings(resolve=resolve))

    committed = transcode.commit(policy, [delivery(span(), resource=resource)], SEGMENT, DIGEST_KEY)

    assert committed.outcomes[0].unresolved == unresolved


def test_decoder_applies_the_configured_limits() -> None:
    policy = transcode.policy(Settings(limits=Limits(spans_max=1)))

    committed = transcode.commit(policy, [delivery(span(), span())], SEGMENT, DIGEST_KEY)

    assert (committed.outcomes[0].verdict, committed.record) == ("too_large", b"")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(Settings(resolve=Resolve(project=("body:x",))), id="unknown source"),
        pytest.param(Settings(resolve=Resolve(deployment=("span:",))), id="empty key"),
        pytest.param(
            Settings(store=Store(retention_days=3, late_margin_days=3)), id="margin reaches retention"
        ),
        pytest.param(Settings(store=Store(retention_days=-1)), id="negative retention"),
        pytest.param(Settings(sampling=Sampling(mode="equalizing", rate=1.5)), id="rate above 1"),
        pytest.param(Settings(sampling=Sampling(mode="hash_seed", seed=-1)), id="negative seed"),
        pytest.param(Settings(limits=Limits(spans_max=0)), id="limit of zero"),
    ],
)
def test_invalid_settings_are_an_operator_error(settings: Settings) -> None:
    with pytest.raises(OperatorError):
        transcode.policy(settings)


def test_commit_sums_spans_by_drain_and_marks_plain_outcomes() -> None:
    accepted, partial = delivery(span()), delivery(span(), span(trace_id=""))
    refused = accepted._replace(body=b"{")
    policy = transcode.policy(Settings())

    committed = transcode.commit(
        policy, [accepted, partial, accepted._replace(drain="other"), refused], SEGMENT, DIGEST_KEY
    )

    assert [outcome.is_plain for outcome in committed.outcomes] == [True, False, True, False]
    assert committed.spans == [("drain", 3, 2, 0, 1, 2), ("other", 1, 1, 0, 0, 1)]
    assert committed.reasons == [("trace_id_missing", 1)]


def test_sampling_rule_drops_the_spans_of_its_project_without_rejecting_them() -> None:
    rule = SamplingRule(project="p", rate=0.0)
    policy = transcode.policy(Settings(sampling=Sampling(mode="equalizing", rule=(rule,))))
    of_the_project = delivery(span(), resource={"platform.projectId": "p"})

    committed = transcode.commit(policy, [of_the_project, delivery(span())], SEGMENT, DIGEST_KEY)

    assert [(outcome.sampled_out, outcome.stored, outcome.rejected) for outcome in committed.outcomes] == [
        (1, 0, 0),
        (0, 1, 0),
    ]
