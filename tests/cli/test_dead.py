"""Tests of `trace-drain dead`, through the API of a running receiver and without a receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from aiohttp import web
from click.testing import Result
from structlog.testing import capture_logs

from receiver import transcode
from receiver.console.api.dead_letters import DeadLetterRoutes
from receiver.console.api.routes import Api
from receiver.console.api.spool import SpoolSpace
from receiver.dead_letters.directory import DeadLetterList
from receiver.dead_letters.replay import Replayer
from receiver.journal.quarantine import QuarantineFiles, QuarantineNote
from receiver.journal.segments import Journal
from receiver.supervisor.state import read_state
from tests.support import commands
from tests.support.cases import each_case
from tests.support.fake_api import write_state
from tests.support.redelivery import POLICY, Harness, delivery
from tests.support.segments import DIGEST_KEY, day_of

DEAD_LETTER_ID = "0000000000000007-0000000001.poison"
BODY_ID = "ab" * 16


def run(directory: Path, *arguments: str) -> Result:
    return commands.run("dead", *arguments, "--data", str(directory))


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """Return a data directory with a dead letter of three rows and a quarantined body."""
    harness = Harness(tmp_path)
    harness.store.poisonous_days = {day_of(2)}
    harness.add([1, 2], drain="acme")
    harness.drain()
    bodies, body = QuarantineFiles(tmp_path / "aside"), delivery(3)
    bodies.write(bodies.path_of(BODY_ID, body), body.body, QuarantineNote("acme", body.received_at_ns))
    return harness


def api_of(harness: Harness, pool: ThreadPoolExecutor) -> web.Application:
    replays = Replayer(
        dead_letter_list=DeadLetterList(harness.directory),
        journal=harness.directory / "journal",
        store=harness.store,
        commit=partial(transcode.commit, POLICY, digest_key=DIGEST_KEY),
        body_bytes_max=lambda _drain: 1 << 20,
        now=lambda: 0.0,
        check=lambda: None,
        on_replay=lambda _segment: None,
    )
    space = SpoolSpace(harness.directory, 0, lambda: 0)
    api = Api(harness.store, str, dict, list, dict, dict, dict, dict, pool, pool, space)
    return api.application(DeadLetterRoutes(replays, pool))


async def serve(harness: Harness, ports: list[int], ready: Event, stop: Event) -> None:
    with ThreadPoolExecutor(2) as pool:
        runner = web.AppRunner(api_of(harness, pool))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ports.append(runner.addresses[0][1])
        ready.set()
        await asyncio.to_thread(stop.wait)
        await runner.cleanup()


@pytest.fixture
def running(harness: Harness) -> Iterator[Harness]:
    """Return the same directory with a running receiver, which is this process."""
    ports: list[int] = []
    ready, stop = Event(), Event()
    thread = Thread(target=lambda: asyncio.run(serve(harness, ports, ready, stop)))
    thread.start()
    assert ready.wait(20)
    write_state(harness.directory, f"http://127.0.0.1:{ports[0]}")
    # The log of a receiver is not a part of what the commands print.
    with capture_logs():
        yield harness
    stop.set()
    thread.join(20)


@pytest.mark.parametrize("fixture_name", ["harness", "running"])
def test_ls_lists_dead_letters_and_bodies_with_and_without_a_receiver(
    fixture_name: str, request: pytest.FixtureRequest
) -> None:
    harness: Harness = request.getfixturevalue(fixture_name)

    table = run(harness.directory, "ls").output.splitlines()
    rows = [json.loads(line) for line in run(harness.directory, "ls", "--format", "json").output.splitlines()]

    assert table[0].split()[:4] == ["id", "cause", "rows", "bytes"]
    assert table[1].split()[:3] == [DEAD_LETTER_ID, "poison", "3"]
    assert "acme" in table[1]
    assert table[2].split()[:3] == [BODY_ID, "crashed", "?"]
    assert [row["id"] for row in rows] == [DEAD_LETTER_ID, BODY_ID]


@pytest.mark.parametrize("fixture_name", ["harness", "running"])
@pytest.mark.parametrize("reason", ["", '{"segment": 7}'], ids=["torn", "of another form"])
def test_ls_lists_a_dead_letter_with_a_damaged_reason(
    fixture_name: str, reason: str, request: pytest.FixtureRequest
) -> None:
    harness: Harness = request.getfixturevalue(fixture_name)
    (harness.directory / "dead" / f"{DEAD_LETTER_ID}.json").write_text(reason)

    result = run(harness.directory, "ls", "--format", "json")
    dead_letter, body = [json.loads(line) for line in result.output.splitlines()]

    assert result.exit_code == 0
    assert (dead_letter["id"], dead_letter["cause"], dead_letter["rows"]) == (DEAD_LETTER_ID, "poison", None)
    assert dead_letter["text"] == f"its reason cannot be read; expected JSON in '{DEAD_LETTER_ID}.json'"
    assert body["id"] == BODY_ID


def test_dead_letter_with_a_damaged_reason_can_be_dropped_but_not_replayed(running: Harness) -> None:
    running.store.poisonous_days = set()
    (running.directory / "dead" / f"{DEAD_LETTER_ID}.json").write_text("")

    replayed = run(running.directory, "replay", DEAD_LETTER_ID)
    dropped = run(running.directory, "drop", DEAD_LETTER_ID, "--yes")

    assert replayed.exit_code == 1
    assert "kept: the dead letter holds 3 rows, of which an unknown number are not stored" in replayed.output
    assert dropped.exit_code == 0
    assert running.dead_letters == []


def test_show_prints_reason_drain_and_path(harness: Harness) -> None:
    shown = run(harness.directory, "show", DEAD_LETTER_ID).output

    assert "constraint is violated" in shown
    assert "of drain 'acme'" in shown
    assert str(harness.directory / "dead" / DEAD_LETTER_ID) in shown


def test_replay_appends_dead_letters_and_bodies_to_the_journal(running: Harness) -> None:
    running.store.poisonous_days = set()

    single = run(running.directory, "replay", DEAD_LETTER_ID)
    rest = run(running.directory, "replay", "--all", "--format", "json")

    assert (single.exit_code, rest.exit_code) == (0, 0)
    assert single.output.startswith(f"{DEAD_LETTER_ID}: 3 rows moved into the journal as segment ")
    assert (json.loads(rest.output)["id"], json.loads(rest.output)["rows"]) == (BODY_ID, 4)
    assert len(Journal(running.directory / "journal").sealed()) == 2
    assert run(running.directory, "ls", "--format", "json").output == ""
    assert run(running.directory, "replay", "--all").output == "no dead letters\n"


def test_replay_of_rows_that_are_refused_again_exits_with_1(running: Harness) -> None:
    result = run(running.directory, "replay", "--all")

    assert result.exit_code == 1
    assert (
        f"{DEAD_LETTER_ID}: kept: the store still refuses the rows: constraint is violated" in result.output
    )
    assert f"{BODY_ID}: 4 rows moved into the journal" in result.output


def test_drop_deletes_dead_letters_and_bodies(running: Harness) -> None:
    assert run(running.directory, "drop", DEAD_LETTER_ID, "--yes").output == f"{DEAD_LETTER_ID}: dropped\n"
    assert run(running.directory, "drop", BODY_ID, "--yes").exit_code == 0
    assert run(running.directory, "ls", "--format", "json").output == ""


@each_case(
    ("arguments", "code", "message"),
    [
        ("replay", 2, "expected an ID or --all"),
        (f"replay {DEAD_LETTER_ID} --all", 2, "not both"),
        ("replay ../x", 1, "no dead letter has the id '../x'; expected"),
        ("drop x --yes", 1, "no dead letter has the id 'x'; expected"),
        ("drop x", 1, "no dead letter has the id 'x'; expected"),
        ("show x", 1, "expected an id that `dead ls` prints"),
    ],
)
def test_invalid_arguments_are_refused_in_a_single_line(
    running: Harness, arguments: str, code: int, message: str
) -> None:
    result = run(running.directory, *arguments.split())

    assert result.exit_code == code
    assert message in result.output
    assert result.output.count("\n") == 1


def test_replay_and_drop_fail_without_a_receiver(harness: Harness) -> None:
    for arguments in ("replay", "drop --yes", "drop"):
        result = run(harness.directory, *arguments.split(), DEAD_LETTER_ID)
        assert result.output.startswith("trace-drain: no receiver runs on"), arguments
    assert len(harness.dead_letters) == 1


def test_help_shows_that_the_id_of_replay_is_optional() -> None:
    assert "dead replay [OPTIONS] [ID]\n" in commands.run("dead", "replay", "--help").output
    assert "dead drop [OPTIONS] ID\n" in commands.run("dead", "drop", "--help").output


def test_missing_receiver_message_repeats_the_config_option(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('data_dir = "dg"')
    config_option = ["--config", str(tmp_path / "my.toml")]

    result = commands.run("dead", "drop", "x", *config_option)
    listed = commands.run("dead", "ls", *config_option)

    assert f"start it with `trace-drain serve {' '.join(config_option)}`\n" in result.output
    assert f"`trace-drain serve {' '.join(config_option)}` creates it" in listed.output


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("?x=1", None, 400), (f"/{DEAD_LETTER_ID}?x=1", None, 400), ("/x/replay", b"x", 415)],
    ids=["unknown parameter", "unknown parameter of a dead letter", "replay from a form"],
)
def test_api_refuses_a_wrong_request(running: Harness, path: str, body: bytes | None, status: int) -> None:
    url = read_state(running.directory).urls["api"]

    with pytest.raises(HTTPError) as refused:
        urlopen(f"{url}/api/v1/dead{path}", body)

    with refused.value as answer:
        assert answer.code == status


def test_ls_ignores_files_with_other_names(harness: Harness) -> None:
    (harness.directory / "aside" / "notes.body").write_text("strange")
    (harness.directory / "dead" / "notes.json").mkdir()

    DeadLetterList(harness.directory).dead.tidy()

    assert run(harness.directory, "ls", "--format", "json").output.count("\n") == 2
