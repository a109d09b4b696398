"""The door to the core: settings in, records and outcomes out. The core itself is tested beside it."""

from __future__ import annotations

import json

import pytest

from receiver import transcode
from receiver.errors import OperatorError
from receiver.journal.frame import answers_of
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import Limits, Resolve, Sampling, SamplingRule, Settings, Store
from tests.segments import DIGEST_KEY

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


def span(trace_id: str = "5b8efff798038103d269b633813fc60c", **more: object) -> dict[str, object]:
    return {
        "traceId": trace_id,
        "spanId": "eee19b7ec3c1b174",
        "startTimeUnixNano": str(RECEIVED_AT_NS),
        **more,
    }


def segment_of(*deliveries: Delivery) -> bytes:
    policy = transcode.policy(Settings())
    records = b"".join(transcode.commit(policy, [one], SEGMENT, DIGEST_KEY).record for one in deliveries)
    return records + transcode.footer(records)


@pytest.mark.parametrize(
    ("settings", "sent", "verdict", "is_journalled"),
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
        pytest.param(Settings(), [span("")], "malformed", False, id="all rejected: a refused request"),
        pytest.param(Settings(), [], "accepted", False, id="empty: nothing to count"),
    ],
)
def test_a_delivery_that_is_answered_200_is_journalled_for_the_ledger_though_it_has_no_rows(
    settings: Settings, sent: list[dict[str, object]], verdict: str, *, is_journalled: bool
) -> None:
    done = transcode.commit(transcode.policy(settings), [delivery(*sent)], SEGMENT, DIGEST_KEY)

    answered = [one for record in transcode.scan(done.record).records for one in answers_of(record)]
    assert done.outcomes[0].verdict == verdict
    assert len(answered) == is_journalled
    for one in answered:
        tally = one.tallies[0]
        assert tally.received == len(sent) == tally.stored + tally.sampled_out + tally.rejected
        assert one.rows == tally.stored


def test_a_group_becomes_one_record_and_each_delivery_its_outcome() -> None:
    done = transcode.commit(
        transcode.policy(Settings()), [delivery(span(), span("")), delivery(span(""))], SEGMENT, DIGEST_KEY
    )

    assert done.rows == 1
    assert [(one.verdict, one.stored, one.rejected) for one in done.outcomes] == [
        ("accepted", 1, 1),
        ("malformed", 0, 1),
    ]
    assert done.outcomes[0].message == (
        "rejected (1x, first at span 1): span without a trace id; 16 bytes are required"
    )
    assert done.outcomes[0].reasons == [("trace_id_missing", 1)]


def test_a_segment_is_scanned_with_its_identity_and_receive_times() -> None:
    scan = transcode.scan(segment_of(delivery(span()), delivery(span(), span())))

    assert (scan.epoch, scan.seq, scan.sealed, scan.damage) == (SEGMENT.epoch, SEGMENT.seq, True, [])
    assert [record.rows for record in scan.records] == [1, 2]
    assert {record.received_ms for record in scan.records} == {(1_800_000_000_123, 1_800_000_000_123)}


def test_a_rewritten_segment_is_sealed_and_has_the_kept_rows() -> None:
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
def test_a_rewrite_that_makes_no_sense_is_turned_down(keep: list[tuple[int, int]], codec: str) -> None:
    with pytest.raises(transcode.CoreError):
        transcode.rewrite(segment_of(delivery(span())), keep, codec, 1_000)


@pytest.mark.parametrize(
    ("resolve", "resource", "unresolved"),
    [
        pytest.param(Resolve(), {"platform.projectId": "p"}, 0, id="the platform's own spelling"),
        pytest.param(Resolve(), {"vercel.projectId": "p"}, 1, id="another spelling"),
        pytest.param(Resolve(preset="vercel"), {"vercel.projectId": "p"}, 0, id="that spelling chosen"),
        pytest.param(Resolve(project=("resource:k8s:app",)), {"k8s:app": "p"}, 0, id="a key with a colon"),
    ],
)
def test_the_project_is_found_where_the_settings_say(
    resolve: Resolve, resource: dict[str, str], unresolved: int
) -> None:
    policy = transcode.policy(Settings(resolve=resolve))

    done = transcode.commit(policy, [delivery(span(), resource=resource)], SEGMENT, DIGEST_KEY)

    assert done.outcomes[0].unresolved == unresolved


def test_limits_of_the_settings_reach_the_decoder() -> None:
    policy = transcode.policy(Settings(limits=Limits(spans_max=1)))

    done = transcode.commit(policy, [delivery(span(), span())], SEGMENT, DIGEST_KEY)

    assert (done.outcomes[0].verdict, done.record) == ("too_large", b"")


def test_sampled_out_spans_are_no_rejections() -> None:
    nothing_of_p = Sampling(mode="equalizing", rule=(SamplingRule(project="p", rate=0.0),))
    policy = transcode.policy(Settings(sampling=nothing_of_p))

    done = transcode.commit(
        policy,
        [delivery(span(), resource={"platform.projectId": "p"}), delivery(span())],
        SEGMENT,
        DIGEST_KEY,
    )

    assert [(one.sampled_out, one.stored, one.rejected) for one in done.outcomes] == [(1, 0, 0), (0, 1, 0)]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(Settings(resolve=Resolve(project=("body:x",))), id="unknown place"),
        pytest.param(Settings(resolve=Resolve(deployment=("span:",))), id="empty key"),
        pytest.param(
            Settings(store=Store(retention_days=3, late_margin_days=3)), id="margin reaches retention"
        ),
        pytest.param(Settings(store=Store(retention_days=-1)), id="negative retention"),
        pytest.param(Settings(sampling=Sampling(mode="equalizing", rate=1.5)), id="rate above 1"),
        pytest.param(Settings(sampling=Sampling(mode="hash_seed", seed=-1)), id="negative seed"),
        pytest.param(Settings(limits=Limits(spans_max=0)), id="limit of nothing"),
    ],
)
def test_settings_that_make_no_sense_are_an_operators_error(settings: Settings) -> None:
    with pytest.raises(OperatorError):
        transcode.policy(settings)


def test_what_was_accepted_is_added_up_by_drain_and_what_needs_no_word_is_marked() -> None:
    good, partly = delivery(span()), delivery(span(), span(trace_id=""))
    refused = good._replace(body=b"{")
    policy = transcode.policy(Settings())

    done = transcode.commit(
        policy, [good, partly, good._replace(drain="other"), refused], SEGMENT, DIGEST_KEY
    )

    assert [one.is_plain for one in done.outcomes] == [True, False, True, False]
    assert done.spans == [("drain", 3, 2, 0, 1, 2), ("other", 1, 1, 0, 0, 1)]
    assert done.reasons == [("trace_id_missing", 1)]
