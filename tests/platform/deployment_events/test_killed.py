"""Events of a process that is killed during INSERTs are stored once."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from receiver.platform.deployment_events.event_table import event_id
from tests.platform.deployment_events.store_forever import fetched

ROOT = Path(__file__).parents[3]
CHILD = (sys.executable, "-m", "tests.platform.deployment_events.store_forever")


@pytest.mark.fault("kill -9 of the store process while it stores deployment events")
def test_kill_during_an_insert_leaves_each_event_once(tmp_path: Path) -> None:
    rng, stored = random.Random(15), -1
    for fetches in (1, 3):
        # A restarted process fetches again what the killed one had stored.
        command = [*CHILD, str(tmp_path), "store", str(max(0, stored - 1))]
        with Popen(command, stdout=PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            stored = [int(child.stdout.readline()) for _ in range(fetches)][-1]
            # Somewhere in the next INSERT.
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(rng.random() / 20)
            child.kill()
            stored = max(stored, *map(int, child.stdout.read().split()), stored)

    listed = subprocess.run(
        [*CHILD, str(tmp_path), "list"], stdout=PIPE, text=True, cwd=ROOT, check=True
    ).stdout.split()

    assert len(listed) == len(set(listed))
    expected = {event_id(event) for number in range(stored + 1) for event in fetched(number)}
    assert expected <= set(listed)
    # The fetch in which the last process was killed is stored whole or not.
    assert len(set(listed) - expected) in {
        0,
        len({event_id(event) for event in fetched(stored + 1)} - expected),
    }
