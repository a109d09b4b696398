"""While the clock is not believed the embedded store deletes nothing by age."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from receiver.engine.expiry import Expiry
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from tests.test_clock import HOUR_S, Machine

STOPS = ["SYSTEM STOP TTL MERGES otel_traces", "SYSTEM STOP TTL MERGES otel_traces_trace_id_ts"]
STARTS = ["SYSTEM START TTL MERGES otel_traces", "SYSTEM START TTL MERGES otel_traces_trace_id_ts"]


class Engine:
    """A store that hears commands, or is away."""

    def __init__(self, *, embedded: bool = True) -> None:
        self.embedded = embedded
        self.is_away = False
        self.heard: list[str] = []

    def command(self, statement: str) -> None:
        if self.is_away:
            raise StoreTrouble("away")
        self.heard.append(statement)


def expiry(engine: Engine, machine: Machine, root: Path) -> Expiry:
    return Expiry(cast("Store", engine), machine.clock(root))


def test_deletion_is_stopped_once_and_started_again(tmp_path: Path) -> None:
    engine, machine = Engine(), Machine()
    looking = expiry(engine, machine, tmp_path)
    machine.wall_s += HOUR_S
    looking.look()
    looking.look()
    warning = looking.warning
    machine.wall_s -= HOUR_S
    looking.look()

    assert engine.heard == [*STOPS, *STARTS]
    assert warning
    assert looking.warning == ""


def test_deletion_is_stopped_when_an_unavailable_store_is_back(tmp_path: Path) -> None:
    engine, machine = Engine(), Machine()
    looking = expiry(engine, machine, tmp_path)
    machine.wall_s += HOUR_S
    engine.is_away = True
    looking.look()
    engine.is_away = False
    looking.look()

    assert engine.heard == STOPS


def test_server_is_not_stopped_but_the_warning_is_set(tmp_path: Path) -> None:
    engine, machine = Engine(embedded=False), Machine()
    looking = expiry(engine, machine, tmp_path)
    machine.wall_s += HOUR_S
    looking.look()

    assert engine.heard == []
    assert looking.warning
