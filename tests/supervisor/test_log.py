"""Tests of the log in normal operation: the ready line, the first delivery, and the summary."""

from __future__ import annotations

import json
import signal
from typing import Any

from structlog.testing import capture_logs

from receiver import __version__
from receiver.metrics import Metrics
from receiver.supervisor.summary import Summary
from tests.supervisor.supervised import Supervised, post, wait_until

CONFIG = "[journal]\ndisk_free_min = '4MiB'\n[[drain]]\nname = 'shop'\n[[drain]]\nname='b'\npath='/b'"


def events(supervised: Supervised, event: str) -> list[dict[str, Any]]:
    """Return the fields of all log lines with this event."""
    lines = [line for line in supervised.log.splitlines() if line.startswith("{")]
    parsed: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [fields for fields in parsed if fields["event"] == event]


def test_start_first_delivery_and_stop_are_logged_with_their_facts(supervised: Supervised) -> None:
    supervised.start(INTAKE="receiver.processes.intake")
    wait_until(lambda: bool(events(supervised, "ready")))
    urls = supervised.state()["urls"]

    assert [post(supervised), post(supervised)] == [b"200", b"200"]
    supervised.signal(signal.SIGTERM)

    assert supervised.exit_code() == 0
    (ready,) = events(supervised, "ready")
    assert {name: ready[name] for name in ("listen", "admin", "api")} == urls
    assert ready["docs"] == f"{ready['api']}/docs"
    assert (ready["version"], ready["store"]) == (__version__, "embedded")
    assert ready["data_dir"] == str(supervised.directory)
    assert ready["config"] == str(supervised.directory / "trace-drain.toml")
    assert ready["drains"] == ["shop /v1/traces", "b /b"]
    (first,) = events(supervised, "first delivery accepted")
    assert (first["drain"], first["content_type"], first["spans"]) == ("shop", "protobuf", 1)
    (summary,) = events(supervised, "summary")
    assert (summary["deliveries"], summary["answers"], summary["spans_accepted"]) == (2, {"2xx": 2}, 2)


def test_summary_has_the_changes_since_the_last_summary() -> None:
    intake, store, summary = Metrics("intake-0"), Metrics("store"), Summary()
    intake.add("deliveries", 9, drain="a", status="200")
    processes = [intake, store]
    summary.log(metrics.snapshot() for metrics in processes)
    intake.add("deliveries", 3, drain="a", status="200")
    intake.add("deliveries", 2, drain="b", status="503")
    intake.add("deliveries", drain="b", status="closed")
    intake.add("deliveries", 7, drain="", status="505")  # without a drain, so not a delivery
    intake.add("spans_accepted", 30, drain="a")
    store.set("store_spans", 20)
    store.set("backlog_segments", 1)

    with capture_logs() as logged:
        summary.log(metrics.snapshot() for metrics in processes)

    assert logged == [
        {
            "event": "summary",
            "log_level": "info",
            "deliveries": 6,
            "answers": {"2xx": 3, "5xx": 2, "closed": 1},
            "spans_accepted": 30,
            "spans_rejected": 0,
            "spans_sampled_out": 0,
            "spans_duplicate": 0,
            "spans_dead_lettered": 0,
            "spans_stored": 20,
            "backlog_segments": 1,
        }
    ]


def test_summary_without_changes_is_not_logged() -> None:
    intake, summary = Metrics("intake-0"), Summary()
    intake.add("deliveries", drain="a", status="200")
    intake.set("backlog_segments", 3)
    summary.log([intake.snapshot()])

    with capture_logs() as logged:
        summary.log([intake.snapshot()])

    assert logged == []
