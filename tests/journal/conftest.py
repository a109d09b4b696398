"""Fixtures of the journal tests: a disk in memory, a clock, and the journal of an intake on them."""

from __future__ import annotations

import pytest

from receiver.journal.appender import Appender
from tests.support.clock import Clock
from tests.support.journal import appender
from tests.support.memory_disk import MemoryDisk


@pytest.fixture
def files() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(files: MemoryDisk, clock: Clock) -> Appender:
    return appender(files, clock=clock)
