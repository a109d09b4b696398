"""Deployment events on pages: a deployment on one time axis, and the events beside a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from receiver.console.ui.event_refresh import FetchState
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.pages.deployment_events import CONTEXT_LINES, around_errors
from receiver.engine.store import Store
from receiver.platform.deployment_events.event_table import store_events
from tests.console.ui.conftest import FIRST_SPAN_S, HOSTILE, TIMES, Client
from tests.console.ui.test_pages import page_of
from tests.support import engines
from tests.support.cases import each_case

FAILED, FINE, OLD = (f"{number:032x}" for number in (1, 2, 3))
"""Traces of `dpl_2`, in which the first has a failed span, and a trace of `dpl_1`."""


def span(trace_id: str, deployment: str, status: str = "Unset", **attributes: str) -> dict[str, Any]:
    return {
        "Timestamp": f"{FIRST_SPAN_S + (600 if deployment == 'dpl_2' else 60)}.000000000",
        "TraceId": trace_id,
        "SpanId": "a" * 16,
        "ServiceName": "web",
        "SpanName": "GET /cart",
        "SpanKind": "Server",
        "ProjectId": "prj_1",
        "DeploymentId": deployment,
        "StatusCode": status,
        "Duration": 100_000_000,
        "SpanAttributes": attributes,
    }


def event(at_s: float, kind: str, **payload: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"type": kind, "created": int((FIRST_SPAN_S + at_s) * 1_000), "payload": payload}


EVENTS = [
    *(event(300 + index, "stdout", text=f"line {index}", serial=str(index)) for index in range(10)),
    event(310, "stderr", text="error: cart.ts has no types", serial="10"),
    *(event(311 + index, "stdout", text=f"later {index}", serial=str(20 + index)) for index in range(10)),
    event(290, "deployment-state", info={"readyState": "BUILDING"}),
    event(330, "deployment-state", info={"readyState": "READY"}),
    event(
        600, "request", requestId="req_1", proxy={"method": "GET", "host": "shop.example", "path": "/first"}
    ),
    event(
        600,
        "request",
        proxy={"method": "GET", "host": "shop.example", "path": "/second", "platformId": "p_2"},
    ),
    event(
        600, "request", requestId="req_9", proxy={"method": "GET", "host": "other.example", "path": "/third"}
    ),
    event(602, "stdout", text="cart service restarted"),
    event(601, "stderr", requestId="req_1", text="deadlock in cart"),
]


@pytest.fixture(scope="module")
def shop_store(engine_dir: Path) -> Iterator[Store]:
    spans = [
        span(FAILED, "dpl_2", "Error", **{"platform.requestId": "req_1"}),
        span(FINE, "dpl_2", **{"http.request.header.x-request-id": '["p_2"]'}),
        span(OLD, "dpl_1"),
    ]
    with engines.embedded(engine_dir) as store:
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(json.dumps, spans)))
        store_events(store, "prj_1", "dpl_2", EVENTS, FIRST_SPAN_S * 1_000)
        yield store


async def test_deployment_is_shown_on_one_time_axis(site: Client) -> None:
    page = await page_of(site, "/deployment/dpl_2")

    text = page.words
    assert "dpl_2: READY since" in text
    assert "22 lines of its build log in" in text
    assert "1 of them errors" in text
    assert "2 spans, 50 % of them failed" in text
    rows = text.partition("timekindeventtrace")[2]
    order = [rows.index(each) for each in ("BUILDING", "line 0", "line 9", "cart.ts has no types", "later 0")]
    assert order == sorted(order)
    # Only what is close to the error.
    assert "line 5" not in rows
    assert "later 5" not in rows
    assert len(page.all("path")) > 4


async def test_deployment_is_compared_with_the_previous_one(site: Client) -> None:
    links = (await page_of(site, "/deployment/dpl_2")).links

    [link] = [link for link in links if link.startswith("/compare?a=")]
    assert link.startswith("/compare?a=dpl_1&b=dpl_2&project=prj_1&")
    assert not [link for link in (await page_of(site, "/deployment/dpl_1")).links if "/compare?a=" in link]


@each_case(
    ("kind", "present", "absent"),
    [("build", "line 5", "READY"), ("state", "BUILDING", "line 5"), ("request", "other.example", "line 5")],
)
async def test_all_events_of_one_kind_are_listed(site: Client, kind: str, present: str, absent: str) -> None:
    rows = (await page_of(site, f"/deployment/dpl_2?kind={kind}")).words.partition("timekindeventtrace")[2]

    assert present in rows
    assert absent not in rows


async def test_event_is_shown_with_every_field_that_the_platform_sent(site: Client) -> None:
    page = await page_of(site, "/deployment/dpl_2?kind=request")
    link = next(link for link in page.links if "event=" in link)

    details = await page_of(site, link.partition("#")[0])
    assert details.all("pre") == [{"tabindex": "0"}]
    assert '"proxy": {' in details.text


async def test_deployment_without_events_and_spans_is_explained(site: Client) -> None:
    text = (await page_of(site, "/deployment/dpl_9", 404)).words

    assert "No event and no span of deployment dpl_9" in text
    assert "Events of deployments are not fetched: set platform.base_url" in text


@each_case(
    ("trace_id", "present", "absent"),
    [
        (
            FAILED,
            ("/first", "deadlock in cart", "cart service restarted", "has no types", "line 9"),
            ("/second",),
        ),
        (FINE, ("/second", "cart service restarted"), ("/first", "deadlock", "has no types")),
        (OLD, (), ("Events of its deployment",)),
    ],
)
async def test_trace_shows_the_events_of_its_request_and_around_its_time(
    site: Client, trace_id: str, present: tuple[str, ...], absent: tuple[str, ...]
) -> None:
    text = (await page_of(site, f"/trace/{trace_id}")).words

    assert [each for each in present if each not in text] == []
    assert [each for each in (*absent, "/third") if each in text] == []


async def test_events_at_the_time_of_a_trace_are_marks_that_lead_to_their_rows(site: Client) -> None:
    page = await page_of(site, f"/trace/{FAILED}")
    marks = [link for link in page.links if link.startswith("#event-")]

    assert marks
    assert {link[1:] for link in marks} <= {
        values.get("id") for name, values in page.elements if name == "tr"
    }


async def test_trace_links_to_its_deployment_at_its_time(site: Client) -> None:
    links = (await page_of(site, f"/trace/{FAILED}")).links

    link = next(link for link in links if link.startswith("/deployment/dpl_2?"))
    answer = await site.get(link)
    assert "dpl_2: READY since" in await answer.text()


@each_case("path", ["/deployment/dpl_2", f"/trace/{FAILED}"])
@each_case(
    ("state", "text"),
    [
        (FetchState("failed", f"no answer {HOSTILE[0]}"), "Events could not be fetched from the platform:"),
        (FetchState("running"), "Events are being fetched from the platform. Reload the page"),
    ],
)
async def test_failing_or_slow_platform_is_described_beside_what_is_stored(
    site: Client, facts: ReceiverFacts, path: str, state: FetchState, text: str
) -> None:
    requested: list[tuple[str, Sequence[str]]] = []

    async def refresh(deployment: str, _wait_s: float, projects: Sequence[str]) -> FetchState:
        requested.append((deployment, projects))
        return state

    facts.refresh_events = refresh
    page = await page_of(site, path)

    assert text in page.words
    assert "has no types" in page.text
    assert all(page.all("script"))
    assert requested == [("dpl_2", ())]


def test_lines_around_errors_are_shown_once_and_in_order() -> None:
    lines = [
        {"place": index, "is_error": index in {4, 19}, "type": "stderr" if index == 6 else "stdout"}
        for index in range(20)
    ]

    indices = [line["place"] for line in around_errors(lines)]

    assert CONTEXT_LINES == 2
    assert indices == [2, 3, 4, 5, 6, 7, 8, 17, 18, 19]


async def test_list_of_deployments_links_to_their_pages(site: Client) -> None:
    links = (await page_of(site, "/compare")).links

    assert any(link.startswith("/deployment/dpl_2?") and TIMES["since"][:10] in link for link in links)
