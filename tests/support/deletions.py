"""Deletions of spans in a workspace, without a receiver that continues them."""

from __future__ import annotations

import time
from collections import Counter
from itertools import count

from receiver.deletion.deletions import Deletions
from receiver.engine.embedded import EmbeddedStore
from receiver.ledger.ledger import deletion_path
from tests.support.ledger_workspace import Workspace

PATIENCE_S = 60.0


def deletions_of(workspace: Workspace) -> Deletions:
    ticks = count(0.0, 10.0)
    path = deletion_path(workspace.root)
    return Deletions(path, workspace.store, workspace.balances, monotonic=lambda: next(ticks))


def finish(deletions: Deletions) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while deletions.day:
        assert time.monotonic() < until_s, deletions.trouble
        deletions.advance()
        time.sleep(0.01)


def day_of(workspace: Workspace) -> str:
    return time.strftime("%Y%m%d", time.gmtime(workspace.now_s))


def stored_projects(store: EmbeddedStore) -> Counter[str]:
    return Counter(dict(store.rows("SELECT ProjectId, count() FROM otel_traces GROUP BY ProjectId")))
