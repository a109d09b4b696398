"""Writer on a cluster: each row is stored once, whichever shards fail, and after a shard is added."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from receiver.errors import StoreTrouble
from receiver.writer.shards import Shards
from receiver.writer.units import Unit
from tests.support.cases import RANDOM_CASES
from tests.support.fake_clickhouse import TODAY, segment_of
from tests.support.memory_cluster import ClusterCore, MemoryCluster, row
from tests.support.writer_harness import ID, WriterHarness


class ClusterHarness(WriterHarness):
    """A writer on a cluster, and the rows that it was given."""

    store: MemoryCluster

    def __init__(self, directory: Path, cluster: MemoryCluster) -> None:
        super().__init__(directory, store=cluster, core=ClusterCore(), sleeps_max=10**9)
        self.given: list[int] = []

    def add(self, rows: list[int]) -> None:
        self.given += rows
        self.file(segment_of(rows), seq=len(self.files) + 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(Random(1))


@pytest.fixture
def harness(tmp_path: Path, cluster: MemoryCluster) -> ClusterHarness:
    return ClusterHarness(tmp_path, cluster)


ROWS = [row(TODAY - day, trace) for day in range(2) for trace in range(6)]


def test_rows_go_to_the_shard_of_their_trace_with_one_insert(
    harness: ClusterHarness, cluster: MemoryCluster
) -> None:
    harness.add(ROWS)

    harness.drain_all()

    assert cluster.stored_rows == sorted(ROWS)
    assert [len(shard.parts) for shard in cluster.nodes] == [2, 2]
    assert harness.progress.inserts == 1


def test_shard_that_failed_gets_its_rows_without_those_of_the_other_shard(
    harness: ClusterHarness, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = iter(["", "down"])
    monkeypatch.setattr(cluster, "_fault", lambda: next(faults, ""))
    harness.add(ROWS)

    harness.drain_all()

    assert cluster.stored_rows == sorted(ROWS)
    assert harness.tokens == ["#0", "piece#0"]


def test_segment_waits_while_the_only_replica_with_its_rows_may_be_away(
    harness: ClusterHarness, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = iter(["one_replica", "down"])
    monkeypatch.setattr(cluster, "_fault", lambda: next(faults, ""))
    harness.add(ROWS)
    cluster.is_faulty = True
    monkeypatch.setattr(cluster.random, "random", lambda: 0.9)
    writer = harness.writer

    for _ in range(5):
        harness.between_turns_s += 60.0
        writer.drain()

    assert harness.tokens == ["#0"]
    assert cluster.fault_count == 2
    assert harness.files[0].path.exists()


def test_added_shard_is_used_once_no_row_of_the_journal_is_stored(
    harness: ClusterHarness, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = iter(["", "down"])
    monkeypatch.setattr(cluster, "_fault", lambda: next(faults, ""))
    harness.add(ROWS)
    writer = harness.writer
    writer.drain()
    cluster.add_shard()
    later = [row(TODAY, trace) for trace in range(6, 12)]
    harness.add(later)

    for _ in range(50):
        harness.between_turns_s += 0.0 if writer.drain() else 60.0

    assert cluster.stored_rows == sorted([*ROWS, *later])
    assert (harness.directory / "shards").read_text() == "3\n"
    assert cluster.nodes[2].parts


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ROWS, id="rows on all shards"),
        # Nothing of the segment is counted then.
        pytest.param([row(TODAY, trace) for trace in (2, 5, 8)], id="rows on the absent shard only"),
    ],
)
def test_rows_on_a_shard_that_is_not_listed_for_a_while_are_not_sent_again(
    tmp_path: Path, rows: list[int]
) -> None:
    cluster = MemoryCluster(Random(1), shards=3)
    harness = ClusterHarness(tmp_path, cluster)
    # The first writer adopts three shards, and is killed after its INSERT.
    harness.writer.drain()
    harness.add(rows)
    cluster.insert(harness.files[0].path, token=f"{ID}#0", query_id="")
    # As after an hour: the tokens of the INSERT are forgotten.
    for shard in cluster.nodes:
        shard.tokens.clear()

    cluster.listed = 2
    writer = harness.writer
    for _ in range(5):
        writer.drain()
        harness.between_turns_s += 60.0
    assert (tmp_path / "shards").read_text() == "3\n"
    cluster.listed = 0
    harness.drain_all()

    assert cluster.stored_rows == sorted(rows)
    assert harness.dead == []


def test_added_shard_is_not_used_while_an_insert_of_the_journal_may_run(
    harness: ClusterHarness, cluster: MemoryCluster
) -> None:
    harness.add(ROWS)
    shards = Shards(cluster, harness.directory / "shards")
    cluster.late = [(2, "trace-drain-0000000000000007-0000000001#0", lambda: None)]
    units = list[Unit](harness.files)

    shards.adopt_if_changed(units)
    with pytest.raises(
        StoreTrouble, match="the store has 2 shards and the segments of the journal were sent to 0"
    ):
        shards.check()
    shards.adopt_if_changed(units)

    shards.check()
    assert shards.count == 2


def test_number_of_shards_is_read_again_by_the_next_process(
    harness: ClusterHarness, cluster: MemoryCluster
) -> None:
    harness.add(ROWS)
    harness.drain_all()

    harness.add([row(TODAY, 7)])
    harness.drain_all()

    assert cluster.stored_rows == sorted(harness.given)


@pytest.mark.random_cases
@pytest.mark.fault("random faults of single shards and replicas, kills, and a shard that is added")
def test_any_fault_of_shards_and_replicas_leaves_every_row_stored_once(tmp_path: Path) -> None:
    fault_count = 0
    for seed in range(RANDOM_CASES):
        random = Random(seed)
        cluster = MemoryCluster(random, shards=random.randint(1, 4))
        (directory := tmp_path / str(seed)).mkdir()
        harness = ClusterHarness(directory, cluster)
        cluster.is_faulty = True
        writer = harness.writer
        for _ in range(random.randint(8, 45)):
            if random.random() < 0.3 and len(harness.files) < 6:
                traces = random.sample(range(1_000), random.randint(1, 8))
                harness.add([row(TODAY - random.randint(0, 2), trace) for trace in traces])
            # Another writer: as after a kill, every segment may have been sent.
            if random.random() < 0.2:
                writer = harness.writer
            if random.random() < 0.05:
                cluster.add_shard()
            harness.between_turns_s += 0.0 if writer.drain() else 60.0
        cluster.is_faulty = False

        harness.drain_all()

        fault_count += cluster.fault_count
        assert not any(file.path.exists() for file in harness.files), f"seed {seed}"
        assert cluster.stored_rows == sorted(harness.given), f"seed {seed}"
        assert harness.dead == [], f"seed {seed}"
    assert fault_count > 5 * RANDOM_CASES
