"""Metrics: typed, merged over the processes, never going backwards."""

from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from receiver.metrics import METRICS, MetricName, Metrics, Snapshot, carried_over
from receiver.supervisor.exposition import render


def values(*snapshots: Snapshot) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus reads out of the exposition."""
    families = text_string_to_metric_families(render(snapshots).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_name_has_its_meaning() -> None:
    assert set(get_args(MetricName)) == set(METRICS)


def test_counters_of_two_processes_are_added_up() -> None:
    first, second = Metrics("intake-0"), Metrics("intake-1")
    first.add("spans_accepted", 3, drain="production")
    second.add("spans_accepted", 4, drain="production")
    second.add("spans_accepted", 5, drain="other")

    read = values(first.snapshot(), second.snapshot())

    assert read["trace_drain_spans_accepted_total", (("drain", "production"),)] == 7
    assert read["trace_drain_spans_accepted_total", (("drain", "other"),)] == 5


def test_gauges_are_added_up_or_told_apart_as_declared() -> None:
    first, second = Metrics("intake-0"), Metrics("intake-1")
    for metrics, connections, expires_s in [(first, 2, 100), (second, 3, 200)]:
        metrics.set("connections", connections)
        metrics.set("certificate_expires_in_seconds", expires_s)

    read = values(first.snapshot(), second.snapshot())

    assert read["trace_drain_connections", ()] == 5
    assert read["trace_drain_certificate_expires_in_seconds", (("process", "intake-1"),)] == 200


def test_a_counter_is_there_before_it_counts_where_its_labels_are_known() -> None:
    supervisor, intake = Metrics("supervisor"), Metrics("intake-0")
    supervisor.begin(["production"])
    intake.add("spans_rejected", 2, drain="production")

    read = values(supervisor.snapshot(), intake.snapshot())

    assert read["trace_drain_store_alarms_total", ()] == 0
    assert read["trace_drain_spans_duplicate_total", (("drain", "production"),)] == 0
    assert read["trace_drain_spans_rejected_total", (("drain", "production"),)] == 2


def test_histograms_of_two_processes_are_added_up() -> None:
    first, second = Metrics("intake-0"), Metrics("intake-1")
    first.observe("answer_seconds", 0.002)
    second.observe("answer_seconds", 0.003)
    second.observe("answer_seconds", 100.0)

    read = values(first.snapshot(), second.snapshot())

    assert read["trace_drain_answer_seconds_bucket", (("le", "0.002"),)] == 1
    assert read["trace_drain_answer_seconds_bucket", (("le", "0.005"),)] == 2
    assert read["trace_drain_answer_seconds_bucket", (("le", "+Inf"),)] == 3
    assert read["trace_drain_answer_seconds_count", ()] == 3
    assert read["trace_drain_answer_seconds_sum", ()] == pytest.approx(100.005)


def test_what_an_ended_process_counted_stays_counted_and_its_gauges_do_not() -> None:
    kept = None
    for _ in range(2):
        metrics = Metrics("intake-0")
        metrics.add("spans_accepted", 3, drain="production")
        metrics.observe("commit_seconds", 0.1)
        metrics.set("connections", 9)
        kept = carried_over(metrics.snapshot(), kept)
    assert kept is not None

    read = values(kept)

    assert read["trace_drain_spans_accepted_total", (("drain", "production"),)] == 6
    assert read["trace_drain_commit_seconds_count", ()] == 2
    assert ("trace_drain_connections", ()) not in read


def test_a_label_that_is_not_declared_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected \\('drain', 'status'\\)"):
        Metrics().add("deliveries", status="200", drain="production")


def test_a_label_value_cannot_break_out_of_the_exposition() -> None:
    metrics = Metrics()
    metrics.add("span_notes", reason='a"\n\\b')

    read = values(metrics.snapshot())

    assert read["trace_drain_span_notes_total", (("reason", 'a"\n\\b'),)] == 1
