"""`trace-drain store move` without a receiver: what it prints, and why it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest
from click.testing import Result

from receiver.cli.receiver import store_move
from receiver.config.addresses import StoreUrl
from receiver.engine import opening
from receiver.errors import StoreTrouble
from receiver.move.ends import OpenStore
from receiver.settings import Settings
from tests.support import engines
from tests.support.cases import each_case
from tests.support.commands import run, stored_spans
from tests.support.moves import HOUR, content
from tests.support.one_node_cluster import CLUSTER, OneNodeCluster
from tests.support.server_process import Server

SPANS = [
    {"Timestamp": HOUR * 3_600, "TraceId": f"{number:032x}", "SegmentEpoch": 7, "SegmentSeq": number % 2}
    for number in range(10)
]


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    with stored_spans(engine_dir, SPANS) as directory:
        yield directory


def move(data_dir: str | Path, to: str, *more: str) -> Result:
    return run("store", "move", "--data", str(data_dir), "--to", to, *more)


def test_move_prints_progress_and_when_the_embedded_store_may_be_deleted(
    data_dir: str, server: Server
) -> None:
    database = f"moved_{uuid4().hex}"
    url = f"http://default@127.0.0.1:{server.port}/{database}"

    result = move(data_dir, url)

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"10 spans copied; 10 spans of the embedded store are in {url}, each once",
        f"if the receiver's store.url is {url}, '{data_dir}/store' may be deleted",
    ]
    assert "(day 1 of 1): 10 of 10 spans" in result.stderr
    assert move(data_dir, url).stdout.startswith("0 spans copied; 10 spans")
    with closing(engines.connected(url, database=database)) as store:
        assert content(store)[0] == 10


def test_move_to_a_cluster_says_what_to_set(
    data_dir: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = f"moved_{uuid4().hex}"
    url = f"http://default@127.0.0.1:{server.port}/{database}"
    opened: list[str] = []

    def cluster_of(url: StoreUrl, settings: Settings) -> OneNodeCluster:
        opened.append(settings.store.cluster)
        store = engines.connected(f"http://127.0.0.1:{url.port}", database=database)
        store.create_database()
        return OneNodeCluster(store, database)

    class RunningReceiver(OpenStore):
        def __init__(self, settings: Settings, _state: object) -> None:
            super().__init__(opening.open_store(settings, disk_free_min=lambda: 1))

    monkeypatch.setattr(store_move, "open_server", cluster_of)
    monkeypatch.setattr(store_move, "running_receiver", lambda _: object())
    monkeypatch.setattr(store_move, "_has_embedded_store", lambda *_: True)
    monkeypatch.setattr(store_move, "ReceiverSource", RunningReceiver)

    result = move(data_dir, url, "--cluster", CLUSTER)

    assert result.exit_code == 0, result.output
    assert opened == [CLUSTER]
    first, last = result.stdout.splitlines()
    assert first == f"10 spans copied; 10 spans of the embedded store are in {url}, each once"
    assert last.startswith(
        f'now set store.url = "{url}" and store.cluster = "{CLUSTER}", restart the receiver'
    )


def test_store_with_segments_in_the_journal_may_not_be_deleted(data_dir: str, server: Server) -> None:
    directory = Path(data_dir) / "journal" / f"{7:016x}"
    directory.mkdir(parents=True)
    waiting = directory / "0000000001.native.lz4"
    waiting.touch()

    result = move(data_dir, f"http://default@127.0.0.1:{server.port}/moved_{uuid4().hex}")
    waiting.unlink()

    assert result.stdout.startswith("5 spans copied; 5 spans of the embedded store")
    assert "5 spans of segments in the journal are left to the writer; run the command again" in result.stdout
    assert "may be deleted" not in result.stdout


@each_case(
    ("to", "message"),
    [
        ("embedded", "--to is the embedded store; expected http(s)://user@host:port/database"),
        ("http://user:geheim@host/otel", "--to contains a password"),
        ("tcp://host:9000", "--to has port 9000, which is ClickHouse's native port"),
    ],
)
def test_address_that_is_no_server_or_has_a_password_is_refused(
    tmp_path: Path, to: str, message: str
) -> None:
    result = move(tmp_path, to)

    assert (result.exit_code, message in result.stderr, "geheim" in result.output) == (2, True, False)


def test_receiver_without_an_embedded_store_is_refused(tmp_path: Path) -> None:
    result = move(tmp_path, "http://127.0.0.1:1")

    assert (result.exit_code, "no embedded store in" in result.stderr) == (1, True)


def test_server_that_does_not_answer_is_reported(data_dir: str) -> None:
    result = move(data_dir, "http://127.0.0.1:1")

    assert result.exit_code == 1
    expected = "the server: no answer at 127.0.0.1:1: connection refused; run the command again to continue"
    assert expected in result.stderr


def test_second_move_of_a_data_directory_is_refused(data_dir: str) -> None:
    with store_move.only_move(Path(data_dir)):
        result = move(data_dir, "http://127.0.0.1:1")

    assert result.exit_code == 1
    assert f"another `trace-drain store move` runs on '{data_dir}'" in result.stderr


def test_password_is_read_from_its_file_and_not_printed(
    data_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords: list[str] = []

    def refuse(_url: StoreUrl, settings: Settings) -> NoReturn:
        passwords.append(settings.store.password)
        raise StoreTrouble("refused", code=516, name="AUTHENTICATION_FAILED")

    monkeypatch.setattr(store_move, "open_server", refuse)
    (tmp_path / "password").write_text("geheim\n")
    (tmp_path / "password").chmod(0o600)

    result = move(data_dir, "http://user@host/otel", "--password-file", str(tmp_path / "password"))

    assert passwords == ["geheim"]
    assert "the server: AUTHENTICATION_FAILED (516)" in result.stderr
    assert "geheim" not in result.output
