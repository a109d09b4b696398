"""Long project names: each takes little memory and disk space in the ledger."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from receiver import transcode
from receiver.journal.frame import Answered, answers_of
from receiver.ledger.ledger import Ledger, read_sums
from receiver.ledger.line_sums import lines_of
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.redelivery.decisions import KEPT
from receiver.settings import MIB, Settings
from receiver.settings import Ledger as Limits
from tests.support.segments import DIGEST_KEY

NAME_BYTES = 4 * MIB - 1
DELIVERIES = 8
SPAN = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}


def delivery_of(project: str) -> Delivery:
    attribute = {"key": "platform.projectId", "value": {"stringValue": project}}
    resource = {"resource": {"attributes": [attribute]}, "scopeSpans": [{"spans": [SPAN]}]}
    body = json.dumps({"resourceSpans": [resource]}).encode()
    return Delivery("drain", body, ContentKind.JSON, (), 10**18, strict=False, body_bytes_max=8 * MIB)


def delivery_records(names: Iterator[str]) -> list[Answered]:
    """Return the delivery records of one segment per project name."""
    policy, deliveries = transcode.policy(Settings()), []
    for seq, name in enumerate(names):
        commit = transcode.commit(policy, [delivery_of(name)], SegmentId(1, seq), DIGEST_KEY)
        assert "shortened with a hash" in commit.outcomes[0].message
        records = transcode.scan(commit.record).records
        deliveries += [delivery for record in records for delivery in answers_of(record)]
    return deliveries


def test_project_names_of_4_mib_take_less_than_4_kib_of_the_ledger_each(tmp_path: Path) -> None:
    deliveries = delivery_records("x" * NAME_BYTES + str(number) for number in range(DELIVERIES))
    ledger = Ledger(tmp_path / "ledger", Limits(), lambda: 0.0, is_first=True)
    tracemalloc.start()
    for seq, delivery in enumerate(deliveries):
        ledger.record(SegmentId(1, seq), lines_of([delivery], bytes([KEPT])))
    ledger.close()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    sums, _ = read_sums(tmp_path / "ledger", Limits())
    projects = {heading.project for heading in sums.lines}
    disk_bytes = sum(path.stat().st_size for path in (tmp_path / "ledger").iterdir())
    assert len(projects) == DELIVERIES
    assert max(len(project.encode()) for project in projects) == 256
    assert disk_bytes < DELIVERIES * 4_096
    assert peak_bytes < MIB
