"""Deletion by age in the embedded store is stopped while the clock is not trusted."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from receiver.engine.expiry import Expiry
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from tests.test_clock import HOUR_S, Machine

TABLES = ("otel_traces", "otel_traces_trace_id_ts", "otel_deployment_events")
STOPS = [f"SYSTEM STOP TTL MERGES {table}" for table in TABLES]
STARTS = [f"SYSTEM START TTL MERGES {table}" for table in TABLES]


class Engine:
    """Store that records commands, or is unavailable."""

    def __init__(self, *, embedded: bool = True) -> None:
        self.embedded = embedded
        self.is_unavailable = False
        self.commands: list[str] = []

    def command(self, statement: str) -> None:
        if self.is_unavailable:
            raise StoreTrouble("unavailable")
        self.commands.append(statement)


def expiry(engine: Engine, machine: Machine, root: Path) -> Expiry:
    return Expiry(cast("Store", engine), machine.clock(root))


def test_deletion_is_stopped_once_and_started_again(tmp_path: Path) -> None:
    engine, machine = Engine(), Machine()
    expiry_switch = expiry(engine, machine, tmp_path)
    machine.wall_s += HOUR_S
    expiry_switch.check()
    expiry_switch.check()
    warning = expiry_switch.warning
    machine.wall_s -= HOUR_S
    expiry_switch.check()

    assert engine.commands == [*STOPS, *STARTS]
    assert warning
    assert expiry_switch.warning == ""


def test_deletion_is_stopped_when_an_unavailable_store_is_back(tmp_path: Path) -> None:
    engine, machine = Engine(), Machine()
    expiry_switch = expiry(engine, machine, tmp_path)
    machine.wall_s += HOUR_S
    engine.is_unavailable = True
    expiry_switch.check()
    engine.is_unavailable = False
    expiry_switch.check()

    assert engine.commands == STOPS


def test_server_is_not_stopped_but_the_warning_is_set(tmp_path: Path) -> None:
    engine, machine = Engine(embedded=False), Machine()
    expiry_switch = expiry(engine, machine, tmp_path)
    machine.wall_s += HOUR_S
    expiry_switch.check()

    assert engine.commands == []
    assert expiry_switch.warning
