"""Child process that stores deployment events in the embedded store until it is killed, or lists them.

    python -m tests.platform.deployment_events.store_forever DIRECTORY store FIRST
        store fetches FIRST, FIRST + 1, …
    python -m tests.platform.deployment_events.store_forever DIRECTORY list
        print the id of each listed event

Prints the number of each fetch that is stored. Fetches overlap, as those of a restarted process do.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import count
from pathlib import Path

from receiver.console.queries.questions import QUESTIONS
from receiver.engine import schema
from receiver.platform.deployment_events.event_table import store_events
from tests.support import engines
from tests.support.deployment_events import build_line
from tests.support.fake_clickhouse import schema_sources

DEPLOYMENT = "dpl_killed"
EVENTS = 40
STEP = 15
"""Events that a fetch has, and those that it has more than the one before."""
CREATED_MS = 1_700_000_000_000


def fetched(number: int) -> list[dict[str, object]]:
    """Return the events of a fetch."""
    return [
        {**build_line(n), "created": CREATED_MS + n} for n in range(number * STEP, number * STEP + EVENTS)
    ]


def main(directory: str, command: str, first: str = "0") -> None:
    """Run a command."""
    store = engines.bare(Path(directory) / "store", "killed")
    schema.apply(store, schema_sources(), 30)
    if command == "store":
        for number in count(int(first)):
            store_events(store, "prj_1", DEPLOYMENT, fetched(number), int(time.time() * 1_000))
            print(number, flush=True)  # noqa: T201 - the parent process reads it
    question = QUESTIONS["deployment-events"]
    asked = question.parse({"deployment": DEPLOYMENT, "since": "2000-01-01", "limit": "100000"})
    for line in b"".join(question.ask(store, asked, 2e9).pieces()).splitlines():
        print(json.loads(line)["id"])  # noqa: T201 - as above
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
