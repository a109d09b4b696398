"""The rules over the metrics of spans: promtool accepts them, and each alert fires in a test of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from receiver.console.queries.span_metrics.exposition import Exposition, rendered
from receiver.console.queries.span_metrics.families import PREFIX, families
from receiver.console.queries.span_metrics.series import SeriesKey, SpanCounts, SpanSeries, TraceExemplar

ROOT: Final = Path(__file__).parents[1]
PROMETHEUS: Final = ROOT / "deploy/prometheus"
DASHBOARD: Final = ROOT / "deploy/grafana/dashboards/spans.json"
TESTS: Final = PROMETHEUS / "tests/span-rules.test.yml"
PROMTOOL: Final = shutil.which("promtool")
NEEDS_PROMTOOL: Final = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed: apt-get install prometheus"
)


def counts() -> SpanCounts:
    exemplar = TraceExemplar("ab" * 16, 0.02, 1_795_540_412.702)
    series = SpanSeries(3, 1, 4.5, 1.0, 0.3, {-22: 2, 3: 1}, exemplar, exemplar, 1.0, 2.0)
    odd = SeriesKey('p"\n\\', "dpl_1", "web", "GET /")
    return SpanCounts(0.5, {odd: series}, {"p": 1}, {"p": 2})


def exposed(form: Exposition) -> bytes:
    return rendered(families(counts(), 100, 0), form)


def promtool(*arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run([str(PROMTOOL), *arguments], input=stdin, capture_output=True, check=False)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output


@NEEDS_PROMTOOL
def test_promtool_accepts_the_configuration_the_rules_and_the_metrics(tmp_path: Path) -> None:
    shutil.copytree(PROMETHEUS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "token").write_text("t")

    assert "is valid" in promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert promtool("check", "metrics", stdin=exposed(Exposition.TEXT)) == ""


@NEEDS_PROMTOOL
def test_every_alert_fires_in_a_unit_test() -> None:
    alerts = re.findall(r"- alert: (\w+)", (PROMETHEUS / "span-rules.yml").read_text())
    fired = re.findall(r"alertname: (\w+)\n +exp_alerts:\n", TESTS.read_text())

    assert set(alerts) == set(fired)
    assert "SUCCESS" in promtool("test", "rules", str(TESTS))


def test_every_alert_links_to_the_traces_and_to_a_runbook() -> None:
    rules = (PROMETHEUS / "span-rules.yml").read_text().split("- alert: ")[1:]

    for rule in rules:
        assert "link: '{{ $externalLabels.trace_drain_url }}/search?since=" in rule
        assert "runbook: docs/span-metrics.md#alerts" in rule
    assert "## Alerts" in (ROOT / "docs/span-metrics.md").read_text()


def test_every_metric_of_rules_dashboard_and_docs_is_exposed() -> None:
    exported = set(re.findall(rf"^({PREFIX}\w+)", exposed(Exposition.TEXT).decode(), re.MULTILINE))
    exported.add(f"{PREFIX}duration_seconds")
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = " ".join([*expressions, (PROMETHEUS / "span-rules.yml").read_text()])
    # Recorded names have colons.
    names = set(re.findall(rf"(?<![:\w])({PREFIX}\w+)(?!:)\b", used))

    assert names
    assert names - exported == set()
    for name in set(re.findall(rf"`({PREFIX}\w+)`", (ROOT / "docs/span-metrics.md").read_text())):
        assert name in exported


def test_open_metrics_has_exemplars_and_an_end() -> None:
    text = exposed(Exposition.OPEN_METRICS).decode()

    assert f'}} 1 # {{trace_id="{"ab" * 16}"}} 0.02 1795540412.702\n' in text
    assert 'project="p\\"\\n\\\\"' in text
    assert text.count("# {trace_id") == 3
    assert text.endswith("# EOF\n")
