"""An hour is left to the receiver that began or derived it, for an hour by clocks that roughly agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from receiver.console.queries.rollup.derivation import Closing
from receiver.console.queries.rollup.slots import (
    CLOCKS_DIFFER_MS,
    RESERVED_MS,
    Slot,
    is_of_other,
    next_version,
)
from receiver.engine.cluster import ONE_SERVER
from receiver.engine.store import Parameters
from receiver.errors import StoreTrouble
from tests.support import call_rollups as of_calls
from tests.support.hostile_filters import RecordingStore
from tests.support.random_filters import NOW_S, Span, insert
from tests.support.rollups import (
    HOUR_S,
    Killed,
    KilledStore,
    assert_equal,
    derive_all,
    due_count,
    random_spans,
)
from tests.support.sharded_engine import ShardedEngine, sharded_engine

NOW_MS = 1_800_000_000_000


@pytest.fixture
def cluster(engine_dir: Path) -> Iterator[ShardedEngine]:
    with sharded_engine(engine_dir, [1, 2], random.Random(5)) as cluster:
        yield cluster


@pytest.fixture
def spans(cluster: ShardedEngine) -> list[Span]:
    spans = random_spans(random.Random(6))
    insert(cluster, spans)
    return spans


def receiver(name: str, *, newest: int = 0, embedded: bool = False) -> Any:  # noqa: ANN401 - what is used of a store
    def rows(*_: object) -> list[tuple[int]]:
        return [(newest,)]

    return SimpleNamespace(receiver=name, layout=ONE_SERVER, embedded=embedded, rows=rows)


def slot_of(name: str, age_ms: int) -> Slot:
    return Slot(1, next_version(receiver(name), 1, 2), NOW_MS - age_ms, "table/0")


@pytest.mark.parametrize(
    ("age_ms", "is_reserved"),
    [
        (0, True),
        (RESERVED_MS - 1, True),
        (RESERVED_MS, False),
        pytest.param(1 - CLOCKS_DIFFER_MS, True, id="clock a little ahead"),
        pytest.param(-CLOCKS_DIFFER_MS, False, id="clock far ahead"),
    ],
)
def test_hour_of_another_receiver_is_left_to_it_for_an_hour(age_ms: int, *, is_reserved: bool) -> None:
    slot = slot_of("first", age_ms)

    assert is_of_other(receiver("second"), slot, NOW_MS) == is_reserved


def test_receiver_knows_its_own_hours_after_a_restart() -> None:
    assert not is_of_other(receiver("first"), slot_of("first", 0), NOW_MS)


def test_embedded_store_has_one_receiver() -> None:
    assert not is_of_other(receiver("embedded", embedded=True), slot_of("earlier", 0), NOW_MS)


@pytest.mark.parametrize("newest", [0, 1, (1 << 20) + 5, (7 << 30) + 9])
def test_versions_grow_and_differ_between_derivations_at_once(newest: int) -> None:
    versions = {next_version(receiver("first", newest=newest), 1, 2) for _ in range(20)}

    assert min(versions) > newest
    assert len(versions) > 1


@pytest.mark.fault_tier
def test_receiver_that_fails_leaves_an_hour_to_others(cluster: ShardedEngine, spans: list[Span]) -> None:
    class Failing(RecordingStore):
        def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
            if "INSERT INTO otel_errors" in statement:
                raise StoreTrouble("no memory", code=241)
            return super().rows(statement, parameters)

    failing: Any = Failing(cluster)
    with pytest.raises(StoreTrouble):
        derive_all(failing)

    assert len(derive_all(cluster)) >= 47
    assert due_count(cluster) == 0
    assert_equal(cluster, spans, slots_min=40)


@pytest.mark.fault_tier
def test_hour_is_derived_by_the_receiver_that_began_it_or_after_an_hour_by_another(
    cluster: ShardedEngine, spans: list[Span]
) -> None:
    other: Any = KilledStore(cluster, 20, is_after=True)
    with suppress(Killed):
        derive_all(other)
    written = cluster.rows("SELECT DISTINCT intDiv(toUnixTimestamp(Hour), 3600) FROM otel_rollup_slots")
    begun = {hour for (hour,) in written}
    derived = derive_all(cluster)

    assert begun
    assert begun.isdisjoint(derived)
    assert_equal(cluster, spans)
    assert {*derive_all(cluster, Closing(NOW_S + HOUR_S + 1, 600))} >= begun
    assert_equal(cluster, spans, slots_min=40)


@pytest.mark.fault_tier
def test_calls_are_derived_by_the_receiver_that_derived_the_hour(cluster: ShardedEngine) -> None:
    spans = of_calls.call_spans(random.Random(7))
    insert(cluster, spans)
    derive_all(cluster)
    other: Any = RecordingStore(cluster)
    cluster.command("TRUNCATE TABLE otel_calls")
    derive_all(other)

    assert not [text for text in other.statements if "INSERT INTO otel_calls" in text]
    derive_all(cluster)
    of_calls.assert_equal(cluster, spans, hours_min=40)
