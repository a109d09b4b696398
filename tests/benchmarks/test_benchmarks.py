"""Tests of the benchmark report: medians with their spread, goals, skipped measurements."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.__main__ import line_of
from benchmarks.measure import BODIES, Measurement
from benchmarks.ours import part_of
from benchmarks.report import Results, page, spread

MIB = 1 << 20


def measurement(peer: str = "ours", *, user_s: float = 1.5) -> Measurement:
    """Return the measurement of a run of a million spans."""
    roles = ("supervisor", "intake", "store") if peer == "ours" else (peer,)
    return Measurement(
        peer=peer,
        body=BODIES[0].name,
        spans=1_000_000,
        missing=0,
        elapsed_s=4.0,
        spans_per_s=250_000.0,
        user_s=user_s,
        system_s=0.5,
        by_role={role: (user_s / len(roles), 0.5 / len(roles)) for role in roles},
        peak_bytes=dict.fromkeys(roles, 100 * MIB),
        latency_ms={"p50": 3.0, "p99": 12.0},
        answers={"200": 1_924},
        settled_s=0.4,
        sink_bytes=117_000_000,
        load_busy=0.3,
        sink_busy=0.4,
    )


def test_cpu_per_million_spans_is_user_plus_system_time_divided_by_stored_spans() -> None:
    assert measurement(user_s=1.5).cpu_s_per_million == pytest.approx(2.0)


def test_page_shows_medians_with_spread_and_goal() -> None:
    results = Results(measured=[measurement(user_s=user_s) for user_s in (1.5, 3.5, 1.0)])

    assert "| protobuf, 520 spans | 2.00 (1.50 to 4.00) | ≤ 1.2; ours is 1.7 times that |" in page(results)


def test_page_shows_peers_in_adjacent_columns() -> None:
    results = Results(measured=[measurement(), measurement("rotel", user_s=5.0)])

    assert "| bodies | ours | rotel | goal |" in page(results)
    assert "| protobuf, 520 spans | 2.00 | 5.50 | ≤ 1.2; ours is 1.7 times that |" in page(results)


def test_page_lists_skipped_measurements_with_reason() -> None:
    results = Results(measured=[measurement()], skipped={"otelcol": "'go' cannot be run"})

    assert "Skipped: otelcol: 'go' cannot be run." in page(results)


def test_idle_cpu_time_is_subtracted_from_the_cost_at_a_rate() -> None:
    results = Results(measured=[measurement()], rates=[(125_000.0, measurement())], idle_cpu_share=0.1)

    assert "| 125,000 | 1.56 | 3.00 | 12.00 | 0.40 |" in page(results)


def test_latency_is_a_dash_if_no_request_was_answered() -> None:
    unanswered = replace(measurement(), latency_ms={"p50": None, "p99": None})
    results = Results(measured=[unanswered], rates=[(125_000.0, unanswered)])

    assert "p50 - p99 - ms" in line_of(unanswered)
    assert "| 125,000 | 2.00 | - | - | 0.40 |" in page(results)


def test_results_document_can_be_serialized_to_json() -> None:
    results = Results(measured=[measurement()], by_intakes={1: [measurement()], 2: [measurement()]})

    assert json.loads(json.dumps(results.document()))["measured"][0]["cpu_s_per_million_spans"] == 2.0


def test_spread_of_no_values_is_a_dash() -> None:
    assert spread([], ".2f") == "-"


@pytest.mark.parametrize(
    ("sample", "part"),
    [
        ("_transcode.abi3.so [.] LZ4_compress_fast_extState", "compress"),
        ("_transcode.abi3.so [.] _transcode::otlp::span::decode", "decode and encode"),
        ("libc.so.6 [.] __memmove_avx512_unaligned_erms", "copy"),
        ("[kernel.kallsyms] [k] tcp_recvmsg", "socket"),
        ("[kernel.kallsyms] [k] clear_page_erms", "kernel, other"),
        ("python3.11 [.] _PyEval_EvalFrameDefault", "Python"),
    ],
)
def test_perf_sample_is_assigned_to_its_part_of_the_budget(sample: str, part: str) -> None:
    assert part_of(sample) == part


def test_page_shows_the_cost_of_a_request_on_a_connection_of_its_own_next_to_its_goal() -> None:
    results = Results(connections_ms={"plain": [0.4], "TLS, resumed": [0.6, 0.5, 0.9]})

    assert "| one request of 10 spans per connection, plain, CPU ms | 0.40 |  |" in page(results)
    assert (
        "| one request of 10 spans per connection, TLS, resumed, CPU ms | 0.60 (0.50 to 0.90) | ≤ 0.5 |"
        in page(results)
    )


def test_goal_that_is_met_shows_no_ratio() -> None:
    assert "| protobuf, 520 spans | 1.00 | ≤ 1.2 |" in page(Results(measured=[measurement(user_s=0.5)]))
