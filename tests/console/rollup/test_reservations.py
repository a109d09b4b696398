"""An hour is left to the receiver that began or derived it, for an hour by clocks that roughly agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from receiver.console.queries.rollup.slots import (
    CLOCKS_DIFFER_MS,
    RESERVED_MS,
    Slot,
    is_of_other,
    next_version,
)
from receiver.engine.cluster import ONE_SERVER

NOW_MS = 1_800_000_000_000


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
