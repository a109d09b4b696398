"""Stored deployment events: each once, with all that the platform sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import DEPLOYMENT_EVENTS, Store
from receiver.errors import StoreTrouble
from receiver.platform.deployment_events.event_table import (
    INSERTS_MAX,
    ROWS_MAX,
    Event,
    created_ms,
    event_id,
    row_of,
    store_events,
)
from tests.support import engines
from tests.support.cases import each_case
from tests.support.deployment_events import NOW_MS, build_line, request_event, state_event
from tests.support.platform_events import FULL_EVENT

ALL = {"since": "2000-01-01T00:00Z", "until": "2101-01-01T00:00Z", "limit": "100000"}


@pytest.fixture(scope="module", params=engines.BOTH_KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = (
        engines.embedded(request.getfixturevalue("engine_dir"))
        if request.param == "embedded"
        else engines.over_http(request.getfixturevalue("server_url"))
    )
    with opened as store:
        yield store


def listed(store: Store, deployment: str, **parameters: str) -> list[dict[str, Any]]:
    question = QUESTIONS["deployment-events"]
    asked = question.parse({**ALL, "deployment": deployment, **parameters})
    answer = question.ask(store, asked, NOW_MS / 1_000)
    return [json.loads(line) for line in b"".join(answer.pieces()).splitlines()]


def whole(store: Store, deployment: str, row: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    [found] = listed(store, deployment, event=row["id"])
    return json.loads(found["event"])


def row_count(store: Store, deployment: str) -> int:
    statement = "SELECT count() FROM otel_deployment_events WHERE DeploymentId = {deployment:String}"
    return int(store.rows(statement, {"deployment": deployment})[0][0])


def new_deployment() -> str:
    return f"dpl_{uuid4().hex}"


EVENTS = [
    *(build_line(number, f"line {number}") for number in range(6)),
    state_event(6, "READY"),
    # Without an id: told apart by its content, in which only the serial differs.
    *({"type": "stdout", "created": NOW_MS, "payload": {"text": "same", "serial": str(n)}} for n in range(3)),
    request_event(7, "req_1"),
]
FETCHES = st.lists(
    st.lists(st.sampled_from(EVENTS), min_size=1, max_size=len(EVENTS) * 2), min_size=1, max_size=4
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fetches=FETCHES, project_is_known_from=st.integers(0, 4))
def test_event_is_stored_once_in_any_order_of_fetches(
    store: Store, fetches: Sequence[Sequence[Event]], project_is_known_from: int
) -> None:
    deployment = new_deployment()
    for place, events in enumerate(fetches):
        project = "prj_1" if place >= project_is_known_from else ""
        store_events(store, project, deployment, events, NOW_MS + place)

    fetched = {event_id(event) for events in fetches for event in events}
    assert sorted(row["id"] for row in listed(store, deployment)) == sorted(fetched)


def test_p20_new_events_of_the_array_are_inserted(store: Store) -> None:
    deployment = new_deployment()

    assert store_events(store, "prj_1", deployment, EVENTS[:4], NOW_MS) == 4
    assert store_events(store, "prj_1", deployment, EVENTS, NOW_MS) == len(EVENTS) - 4
    assert store_events(store, "prj_1", deployment, EVENTS, NOW_MS) == 0
    assert row_count(store, deployment) == len(EVENTS)
    assert [row["project"] for row in listed(store, deployment)] == ["prj_1"] * len(EVENTS)


def test_more_events_than_an_insert_has_are_stored(store: Store) -> None:
    deployment, events = new_deployment(), [build_line(number) for number in range(ROWS_MAX * 2 + 1)]

    assert store_events(store, "", deployment, events, NOW_MS) == len(events)
    assert len(listed(store, deployment)) == len(events)


def test_order_of_fields_does_not_change_the_identity() -> None:
    event = {"type": "stdout", "created": 1, "payload": {"text": "a", "serial": "1"}}
    reordered = {"payload": {"serial": "1", "text": "a"}, "created": 1, "type": "stdout"}

    assert event_id(event) == event_id(reordered)
    assert event_id({**event, "created": 2}) != event_id(event)
    assert event_id(build_line(1, "a")) == event_id({**build_line(1, "b"), "more": 1})


class Losing:
    """A store whose INSERTs answer OK and store nothing, a number of times."""

    def __init__(self, store: Store, losses: int) -> None:
        self._store = store
        self.losses = losses
        self.tokens: list[str] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method of the store
        return getattr(self._store, name)

    def insert_lines(self, table: str, lines: bytes, *, token: str) -> None:
        self.tokens.append(token)
        if len(self.tokens) > self.losses:
            self._store.insert_lines(table, lines, token=token)


def test_lost_insert_is_repeated_under_another_token(store: Store) -> None:
    deployment, losing = new_deployment(), Losing(store, 1)

    assert store_events(losing, "", deployment, EVENTS, NOW_MS) == len(EVENTS)
    assert len(set(losing.tokens)) == 2
    assert len(listed(store, deployment)) == len(EVENTS)


def test_store_that_loses_every_insert_is_reported(store: Store) -> None:
    losing = Losing(store, INSERTS_MAX)

    with pytest.raises(StoreTrouble, match="11 deployment events are not stored after 3 INSERTs"):
        store_events(losing, "", new_deployment(), EVENTS, NOW_MS)


def test_repeated_insert_with_the_same_token_adds_no_row(store: Store) -> None:
    deployment, recording = new_deployment(), Losing(store, 0)
    store_events(recording, "", deployment, EVENTS, NOW_MS)
    [token] = recording.tokens

    line = json.dumps(row_of(EVENTS[0], "", deployment, NOW_MS)).encode()
    store.insert_lines(DEPLOYMENT_EVENTS, line, token=token)

    assert row_count(store, deployment) == len(EVENTS)


def test_p21_events_are_listed_in_the_order_of_their_timestamps(store: Store) -> None:
    deployment = new_deployment()
    store_events(store, "", deployment, EVENTS[::-1], NOW_MS)

    times = [row["time"] for row in listed(store, deployment)]
    assert times == sorted(times)
    texts = [row["text"] for row in listed(store, deployment, kind="build")]
    assert texts[-3:] == ["line 3", "line 4", "line 5"]


@each_case(
    ("kind", "events"),
    [
        ("request", [request_event(1, "r")]),
        ("request", [{"type": "edge-function-invocation", "created": NOW_MS, "payload": {"requestId": "r"}}]),
        ("state", [state_event(1, "BUILDING")]),
        ("build", [build_line(0), {"type": "delimiter", "created": NOW_MS + 1, "payload": {"info": {}}}]),
        ("build", [{"type": "a new type", "created": NOW_MS, "payload": {"text": "t"}}]),
    ],
)
def test_p22_type_decides_the_kind_and_new_types_are_kept(
    store: Store, kind: str, events: Sequence[Event]
) -> None:
    deployment = new_deployment()
    store_events(store, "", deployment, events, NOW_MS)

    rows = listed(store, deployment, kind=kind)
    assert [row["type"] for row in rows] == [event["type"] for event in events]
    assert {row["kind"] for row in rows} == {kind}


@each_case(
    ("event", "is_error"),
    [
        (build_line(1, "Error: Cannot find module 'cart'", type="stderr"), True),
        (build_line(1, "npm warn deprecated inflight@1.0.6", type="stderr"), False),
        (build_line(1, "0 errors", type="stdout"), False),
        (state_event(1, "ERROR"), True),
        (state_event(1, "CANCELED"), False),
        (request_event(1, "r", 503), True),
        (request_event(1, "r", 404), False),
    ],
)
def test_errors_are_failed_requests_and_errors_of_builds(
    store: Store, event: Event, *, is_error: bool
) -> None:
    deployment = new_deployment()
    store_events(store, "", deployment, [event], NOW_MS)

    [row] = listed(store, deployment)
    assert row["is_error"] is is_error
    assert len(listed(store, deployment, kind="error")) == is_error


def test_p23_p24_every_field_is_kept_whether_the_platform_states_it_or_not(store: Store) -> None:
    other = {"later": {"x": [1, None, 2**70]}, "other": [True, 1.5, "\0\u202e\x1b[2J"]}
    event = {**FULL_EVENT, **other, "created": NOW_MS, "payload": {**FULL_EVENT["payload"], **other}}
    deployment = new_deployment()
    store_events(store, "", deployment, [event], NOW_MS)

    [row] = listed(store, deployment, request="fra1::1")
    assert whole(store, deployment, row) == event
    assert (row["text"], row["request_id"], row["status_code"]) == ("GET /", "req_1", 200)
    assert (row["step"], row["step_name"], row["ready_state"]) == ("install", "bld_1", "BUILDING")
    assert (row["method"], row["host"], row["path"]) == ("GET", "shop.example", "/")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
FIELDS = ("type", "created", "payload", "text", "id", "requestId", "info", "proxy", "statusCode", "serial")
ANY_OBJECT = st.dictionaries(st.sampled_from(FIELDS) | st.text(), ANY_JSON, max_size=6)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event=ANY_OBJECT, payload=ANY_OBJECT)
def test_event_of_any_shape_is_stored_unchanged(
    store: Store, event: dict[str, Any], payload: dict[str, Any]
) -> None:
    event, deployment = {**event, "payload": payload}, new_deployment()
    store_events(store, "", deployment, [event], NOW_MS)

    statement = "SELECT Event FROM otel_deployment_events WHERE DeploymentId = {deployment:String}"
    assert json.loads(store.rows(statement, {"deployment": deployment})[0][0]) == event
    assert store_events(store, "", deployment, [event], NOW_MS) == 0


@each_case(
    ("created", "expected_ms"),
    [
        (1_700_000_000, 1_700_000_000_000),
        (1_700_000_000_123, 1_700_000_000_123),
        (1_700_000_000_123_456, 1_700_000_000_123),
        (1_700_000_000_123_456_789, 1_700_000_000_123),
        (1_700_000_000.5, 1_700_000_000_500),
        (1e200, 4_102_444_800_000),
        (-5, 0),
        ("now", 0),
        (True, 0),
    ],
)
def test_size_of_a_time_determines_its_unit(created: object, expected_ms: int) -> None:
    assert created_ms({"created": created}) == expected_ms


def test_event_without_a_time_of_its_own_has_that_of_its_payload() -> None:
    assert created_ms({"payload": {"date": 1_700_000_000_000}}) == 1_700_000_000_000


def test_long_text_is_cut_in_a_list_and_whole_alone(store: Store) -> None:
    deployment, text = new_deployment(), "ä" * 2**20
    store_events(store, "", deployment, [build_line(1, text)], NOW_MS)

    [row] = listed(store, deployment)
    assert row["text"] == "ä" * 4_096 + "…"
    assert whole(store, deployment, row)["payload"]["text"] == text


def test_expired_events_are_deleted_and_can_be_fetched_again(engine_dir: Path) -> None:
    with engines.embedded(engine_dir) as store:
        deployment = new_deployment()
        store_events(store, "", deployment, EVENTS, NOW_MS - 29 * 86_400_000)
        assert len(listed(store, deployment)) == len(EVENTS)

        store.command(
            "ALTER TABLE otel_deployment_events MODIFY TTL toDateTime(FetchedAt, 'UTC') + INTERVAL 7 DAY"
        )
        store.command("OPTIMIZE TABLE otel_deployment_events FINAL")
        assert listed(store, deployment) == []

        assert store_events(store, "", deployment, EVENTS, NOW_MS) == len(EVENTS)
        assert len(listed(store, deployment)) == len(EVENTS)
