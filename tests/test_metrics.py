"""Tests of the metrics: typed, merged across processes, counters never decrease."""

import shutil
import subprocess
from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from receiver.metrics import METRICS, SECONDS_BUCKETS, MetricName, Metrics, Series, Snapshot, carried_over
from receiver.supervisor.admin import render


def values(*snapshots: Snapshot) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the samples that Prometheus parses from the exposition."""
    families = text_string_to_metric_families(render(snapshots).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_metric_name_is_declared() -> None:
    assert set(get_args(MetricName)) == set(METRICS)


def test_counters_of_two_processes_are_summed() -> None:
    first, second = Metrics("intake-0"), Metrics("intake-1")
    first.add("spans_accepted", 3, drain="production")
    second.add("spans_accepted", 4, drain="production")
    second.add("spans_accepted", 5, drain="other")

    samples = values(first.snapshot(), second.snapshot())

    assert samples["trace_drain_spans_accepted_total", (("drain", "production"),)] == 7
    assert samples["trace_drain_spans_accepted_total", (("drain", "other"),)] == 5


def test_gauges_are_summed_or_labelled_by_process_as_declared() -> None:
    first, second = Metrics("intake-0"), Metrics("intake-1")
    for metrics, connections, expires_s in [(first, 2, 100), (second, 3, 200)]:
        metrics.set("connections", connections)
        metrics.set("certificate_expires_in_seconds", expires_s)

    samples = values(first.snapshot(), second.snapshot())

    assert samples["trace_drain_connections", ()] == 5
    assert samples["trace_drain_certificate_expires_in_seconds", (("process", "intake-1"),)] == 200


def test_counter_with_known_labels_is_exposed_as_zero() -> None:
    supervisor, intake = Metrics("supervisor"), Metrics("intake-0")
    supervisor.begin(["production"])
    intake.add("spans_rejected", 2, drain="production")

    samples = values(supervisor.snapshot(), intake.snapshot())

    assert samples["trace_drain_store_alarms_total", ()] == 0
    assert samples["trace_drain_spans_duplicate_total", (("drain", "production"),)] == 0
    assert samples["trace_drain_spans_rejected_total", (("drain", "production"),)] == 2


def test_histograms_of_two_processes_are_summed() -> None:
    first, second = Metrics("intake-0"), Metrics("intake-1")
    first.observe("answer_seconds", 0.002)
    second.observe("answer_seconds", 0.003)
    second.observe("answer_seconds", 100.0)

    samples = values(first.snapshot(), second.snapshot())

    assert samples["trace_drain_answer_seconds_bucket", (("le", "0.002"),)] == 1
    assert samples["trace_drain_answer_seconds_bucket", (("le", "0.005"),)] == 2
    assert samples["trace_drain_answer_seconds_bucket", (("le", "+Inf"),)] == 3
    assert samples["trace_drain_answer_seconds_count", ()] == 3
    assert samples["trace_drain_answer_seconds_sum", ()] == pytest.approx(100.005)


def test_counters_of_an_exited_process_are_kept_and_its_gauges_are_not() -> None:
    carried = None
    for _ in range(2):
        metrics = Metrics("intake-0")
        metrics.add("spans_accepted", 3, drain="production")
        metrics.observe("commit_seconds", 0.1)
        metrics.set("connections", 9)
        carried = carried_over(metrics.snapshot(), carried)
    assert carried is not None

    samples = values(carried)

    assert samples["trace_drain_spans_accepted_total", (("drain", "production"),)] == 6
    assert samples["trace_drain_commit_seconds_count", ()] == 2
    assert ("trace_drain_connections", ()) not in samples


def test_undeclared_label_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected \\('drain', 'status'\\)"):
        Metrics().add("deliveries", status="200", drain="production")


def test_label_value_is_escaped() -> None:
    metrics = Metrics()
    metrics.add("span_notes", reason='a"\n\\b')

    samples = values(metrics.snapshot())

    assert samples["trace_drain_span_notes_total", (("reason", 'a"\n\\b'),)] == 1


PROMTOOL = shutil.which("promtool")
OTHER_UNITS = {
    "nanoseconds", "microseconds", "milliseconds", "minutes", "hours", "days", "weeks", "ns", "us", "ms",
    "kilobytes", "megabytes", "gigabytes", "kib", "mib", "gib", "bits", "percent",
}  # fmt: skip
"""Units that Prometheus replaces by base units: seconds, bytes, ratio."""
RESERVED_SUFFIXES = ("_total", "_count", "_sum", "_bucket", "_info")
"""Suffixes that belong to a type of metric. The exposition adds them."""


@pytest.mark.parametrize("name", METRICS)
def test_metric_is_named_by_the_rules_of_prometheus(name: MetricName) -> None:
    spec, parts = METRICS[name], name.split("_")

    assert name == name.lower()
    assert not OTHER_UNITS & set(parts), "not a base unit"
    assert not name.endswith(RESERVED_SUFFIXES) or name == "build_info"
    assert spec.kind != "seconds" or name.endswith("_seconds")
    assert spec.help
    assert not {"le", "quantile"} & set(spec.labels)


def series_of(name: MetricName) -> Series:
    spec = METRICS[name]
    buckets = (0,) * (len(SECONDS_BUCKETS) + 1) if spec.kind == "seconds" else ()
    return Series(name, ("x",) * len(spec.labels), 1.0, buckets)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_accepts_every_metric() -> None:
    snapshot = Snapshot("intake-0", tuple(series_of(name) for name in METRICS))

    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=render([snapshot]), capture_output=True, check=False
    )

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
