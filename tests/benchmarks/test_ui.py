"""Tests of the benchmarks of the pages: the spans that they send, and the page of results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.ui.gallery import LEFT_OUT, shots
from benchmarks.ui.page import page, spread
from benchmarks.ui.results import Drawn, PageRun, Results, Scrolled, TraceResult
from benchmarks.ui.shop import large_trace, shop
from receiver.console.ui.pages.table import PAGES

DOCS = Path(__file__).parents[2] / "docs"
TRACE = "a" * 32


def spans_of(bodies: Iterable[bytes]) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Yield each span with the attributes of its resource."""
    for body in bodies:
        for group in orjson.loads(body)["resourceSpans"]:
            resource = {each["key"]: each["value"]["stringValue"] for each in group["resource"]["attributes"]}
            for span in group["scopeSpans"][0]["spans"]:
                yield resource, span


def test_large_trace_is_one_tree_with_failures() -> None:
    spans = [span for _, span in spans_of(large_trace(TRACE, 6_000))]

    assert len(spans) == 6_000
    assert {span["traceId"] for span in spans} == {TRACE}
    seen = {""}
    # Requests group spans by resource, so only the numbers of the spans are in order.
    for span in sorted(spans, key=lambda span: str(span["spanId"])):
        assert span["parentSpanId"] in seen
        seen.add(span["spanId"])
    assert sum("status" in span for span in spans) == 7


def test_newest_deployment_of_the_shop_fails_more_often() -> None:
    spans, failed = Counter[str](), Counter[str]()
    for resource, span in spans_of(shop(4_000)):
        spans[resource["platform.deploymentId"]] += 1
        failed[resource["platform.deploymentId"]] += "status" in span

    assert set(spans) == {"dpl_77a", "dpl_8f2", "dpl_b1"}
    assert failed["dpl_8f2"] / spans["dpl_8f2"] > 2 * failed["dpl_77a"] / spans["dpl_77a"] > 0


def results_of(drawn_ms: float, frame_ms: float) -> Results:
    trace = TraceResult(50_000, [Drawn(900, drawn_ms, 512, 400)], [Scrolled([frame_ms] * 20, 8)])
    return Results("a machine", 1.5, "1.2", [trace], {"/errors": [PageRun(120, 100, 9.5)]})


@pytest.mark.parametrize(("drawn_ms", "frame_ms", "met"), [(499, 16.7, 2), (501, 16.7, 1), (501, 33.4, 0)])
def test_page_says_which_goals_are_met(drawn_ms: float, frame_ms: float, met: int) -> None:
    text = page(results_of(drawn_ms, frame_ms))

    assert text.count(", met |") == met
    assert text.count("missed: ") == 2 - met


def test_page_shows_what_a_page_does_besides_its_queries() -> None:
    assert "| `/errors` | 120 (120; 120) | 100 (100; 100) | 20.0 (20.0; 20.0) | 9.5 |" in page(
        results_of(400, 16.7)
    )


def test_spread_is_the_median_the_lowest_and_the_highest() -> None:
    assert spread([3, 1, 2_000]) == "3.0 (1.0; 2,000)"


def test_gallery_shows_every_page_but_those_of_arriving_spans() -> None:
    found = {shot.page.name: shot.url for shot in shots("a" * 32, "b" * 32)}

    assert set(found) == set(PAGES) - LEFT_OUT
    assert found["trace"] == f"/trace/{'a' * 32}"
    assert found["compare"] == "/compare?a=dpl_77a&b=dpl_8f2&project=prj_shop"
    assert not any("{" in url for url in found.values())


@pytest.mark.parametrize("name", ["gallery", "tour"])
def test_page_names_every_screenshot(name: str) -> None:
    named = re.findall(rf"\({name}/([\w-]+\.webp)#only-(?:light|dark)\)", (DOCS / f"{name}.md").read_text())

    assert sorted(named) == sorted(path.name for path in (DOCS / name).iterdir())
