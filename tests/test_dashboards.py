"""The dashboards and data sources for Grafana: their metrics exist, and their SQL runs on the table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from receiver.engine.store import Store
from tests.support import engines
from tests.support.cases import each_case
from tests.support.fake_clickhouse import NOW_S
from tests.support.metric_names import exported_names, named_metrics
from tests.support.traces import span

GRAFANA = Path(__file__).parents[1] / "deploy/grafana"
DASHBOARDS: Final = sorted((GRAFANA / "dashboards").glob("*.json"))
MACROS: Final = {
    r"\$__timeFilter\((\w+)\)": r"\1 >= toDateTime({from_s}) AND \1 <= toDateTime({to_s})",
    r"\$__timeInterval\((\w+)\)": r"toStartOfInterval(toDateTime(\1), INTERVAL 60 second)",
    r"\$__interval_s\b": "60",
}
"""Macros of the ClickHouse data source, and their expansions."""
VALUES: Final = {"service": "'web'", "a": "'dpl_1'", "b": "'dpl_2'"}
"""Values of the variables, as the format `sqlstring` quotes them."""


def dashboard(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def targets(path: Path) -> Iterator[dict[str, Any]]:
    return (target for panel in dashboard(path)["panels"] for target in panel["targets"])


def expressions() -> list[str]:
    # tests/test_span_rules.py checks the metrics of spans.
    paths = [path for path in DASHBOARDS if path.stem != "spans"]
    return [target["expr"] for path in paths for target in targets(path) if "expr" in target]


def statements() -> list[str]:
    """Return the statements of all panels and variables."""
    panels = [target["rawSql"] for path in DASHBOARDS for target in targets(path) if "rawSql" in target]
    variables = [
        each["query"]
        for path in DASHBOARDS
        for each in dashboard(path)["templating"]["list"]
        if each["datasource"]["type"] != "prometheus"
    ]
    return panels + variables


def expanded(statement: str) -> str:
    """Return a statement as the data source sends it."""
    for macro, text in MACROS.items():
        statement = re.sub(macro, text.format(from_s=NOW_S, to_s=NOW_S + 600), statement)
    return re.sub(r"\$\{(\w+):sqlstring\}", lambda match: VALUES[match[1]], statement)


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    """Yield the embedded store with a request of each of two deployments, the second of which failed."""
    with engines.embedded(engine_dir) as store:
        first = span("1", Timestamp=f"{NOW_S}.000000000", ServiceName="web", DeploymentId="dpl_1")
        second = {**first, "SpanId": "2", "DeploymentId": "dpl_2", "StatusCode": "Error"}
        rows = [first, second]
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(json.dumps, rows)))
        yield store


def test_there_are_dashboards_of_metrics_and_of_the_table() -> None:
    assert len(expressions()) > 10
    assert len(statements()) > 10


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_have_ids_of_their_own_and_do_not_overlap(path: Path) -> None:
    panels = dashboard(path)["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@each_case("expression", expressions())
def test_every_metric_of_a_panel_is_exported(expression: str) -> None:
    assert named_metrics(expression)
    assert named_metrics(expression) - exported_names() == set()


@pytest.mark.parametrize("statement", statements())
def test_every_statement_finds_the_stored_spans(store: Store, statement: str) -> None:
    sent = expanded(statement)

    assert "$" not in sent
    assert store.rows(sent)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_data_source_of_a_dashboard_is_provisioned(path: Path) -> None:
    provisioned = (GRAFANA / "provisioning/datasources/trace-drain.yaml").read_text()
    known = set(re.findall(r"^    uid: (\S+)\n    type: (\S+)$", provisioned, re.MULTILINE))
    panels = dashboard(path)["panels"]
    used = [*targets(path), *panels, *dashboard(path)["templating"]["list"]]

    assert {(each["datasource"]["uid"], each["datasource"]["type"]) for each in used} - known == set()


def test_attribute_keys_are_not_discovered_by_reading_the_table() -> None:
    provisioned = (GRAFANA / "provisioning/datasources/trace-drain.yaml").read_text()

    assert re.search("^      enableMapKeysDiscovery: false$", provisioned, re.MULTILINE)
