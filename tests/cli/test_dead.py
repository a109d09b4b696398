"""`trace-drain dead` through the API of a running receiver, and beside none."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
from aiohttp import ClientSession, web
from click.testing import CliRunner, Result

from receiver import transcode
from receiver.api.dead_letters import DeadLetterRoutes
from receiver.api.routes import Api
from receiver.api.spool import SpoolSpace
from receiver.cli import main
from receiver.dead_letters.listing import DeadLetterList
from receiver.dead_letters.replay import Replayer
from receiver.journal.quarantine import Note, QuarantineFiles
from receiver.journal.segments import Journal
from receiver.supervisor.data_dir import STATE_NAME
from tests.support.redelivery import POLICY, Harness, delivery
from tests.support.segments import DIGEST_KEY, day_of

LETTER = "0000000000000007-0000000001.poison"
BODY = "ab" * 16


def run(directory: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["dead", *words, "--data", str(directory)])


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """One letter with three rows, one body."""
    harness = Harness(tmp_path)
    harness.store.poisonous_days = {day_of(2)}
    harness.add([1, 2], drain="acme")
    harness.drain()
    bodies, body = QuarantineFiles(tmp_path / "aside"), delivery(3)
    bodies.write(bodies.path_of(BODY, body), body.body, Note("acme", body.received_at_ns))
    return harness


def api_of(harness: Harness, pool: ThreadPoolExecutor) -> web.Application:
    replays = Replayer(
        dead_letter_list=DeadLetterList(harness.directory),
        journal=harness.directory / "journal",
        store=harness.store,
        core=transcode,
        commit=partial(transcode.commit, POLICY, digest_key=DIGEST_KEY),
        footer=transcode.footer,
        body_bytes_max=lambda _drain: 1 << 20,
        now=lambda: 0.0,
        check=lambda: None,
        on_replay=lambda _segment: None,
    )
    space = SpoolSpace(harness.directory, 0, lambda: 0)
    api = Api(
        store=harness.store,
        token=lambda: "",
        health=dict,
        schema=list,
        ledger=dict,
        pool=pool,
        stream_pool=pool,
        space=space,
    )
    return api.application(DeadLetterRoutes(replays, pool))


async def serve(harness: Harness, ports: list[int], ready: Event, over: Event) -> None:
    with ThreadPoolExecutor(2) as pool:
        runner = web.AppRunner(api_of(harness, pool))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ports.append(runner.addresses[0][1])
        ready.set()
        await asyncio.to_thread(over.wait)
        await runner.cleanup()


@pytest.fixture
def running(harness: Harness) -> Iterator[Harness]:
    """The same with a receiver: this process."""
    ports: list[int] = []
    ready, over = Event(), Event()
    thread = Thread(target=lambda: asyncio.run(serve(harness, ports, ready, over)))
    thread.start()
    assert ready.wait(20)
    state = {
        "listen": "",
        "admin": "",
        "api": "",
        "version": "",
        "started_at": "",
        "urls": {"api": f"http://127.0.0.1:{ports[0]}"},
        "pids": {"supervisor": os.getpid(), "intake": [], "store": 0},
    }
    (harness.directory / STATE_NAME).write_text(json.dumps(state))
    yield harness
    over.set()
    thread.join(20)


@pytest.mark.parametrize("where", ["harness", "running"])
def test_ls_lists_letters_and_bodies_beside_a_receiver_and_without_one(
    where: str, request: pytest.FixtureRequest
) -> None:
    harness: Harness = request.getfixturevalue(where)

    table = run(harness.directory, "ls").output.splitlines()
    rows = [json.loads(line) for line in run(harness.directory, "ls", "--format", "json").output.splitlines()]

    assert table[0].split()[:4] == ["id", "cause", "rows", "bytes"]
    assert table[1].split()[:3] == [LETTER, "poison", "3"]
    assert "acme" in table[1]
    assert table[2].split()[:3] == [BODY, "crashed", "?"]
    assert [row["id"] for row in rows] == [LETTER, BODY]


@pytest.mark.parametrize("where", ["harness", "running"])
@pytest.mark.parametrize("reason", ["", '{"segment": 7}'], ids=["torn", "of another form"])
def test_a_letter_whose_reason_rotted_says_so_and_hides_no_other(
    where: str, reason: str, request: pytest.FixtureRequest
) -> None:
    harness: Harness = request.getfixturevalue(where)
    (harness.directory / "dead" / f"{LETTER}.json").write_text(reason)

    done = run(harness.directory, "ls", "--format", "json")
    letter, body = [json.loads(line) for line in done.output.splitlines()]

    assert done.exit_code == 0
    assert (letter["id"], letter["cause"], letter["rows"]) == (LETTER, "poison", None)
    assert letter["text"] == f"its reason cannot be read; expected JSON in '{LETTER}.json'"
    assert body["id"] == BODY


def test_a_letter_whose_reason_rotted_is_not_replayed_and_may_be_dropped(running: Harness) -> None:
    running.store.poisonous_days = set()
    (running.directory / "dead" / f"{LETTER}.json").write_text("")

    replayed = run(running.directory, "replay", LETTER)
    dropped = run(running.directory, "drop", LETTER, "--yes")

    assert replayed.exit_code == 1
    assert "kept: it holds 3 rows, of which an unknown number are not stored" in replayed.output
    assert dropped.exit_code == 0
    assert running.letters == []


def test_show_tells_why_whose_and_where(harness: Harness) -> None:
    shown = run(harness.directory, "show", LETTER).output

    assert "constraint is violated" in shown
    assert "of drain 'acme'" in shown
    assert str(harness.directory / "dead" / LETTER) in shown


def test_replay_puts_a_letter_and_a_body_back_into_the_journal(running: Harness) -> None:
    running.store.poisonous_days = set()

    one = run(running.directory, "replay", LETTER)
    rest = run(running.directory, "replay", "--all", "--format", "json")

    assert (one.exit_code, rest.exit_code) == (0, 0)
    assert one.output.startswith(f"{LETTER}: 3 rows put into the journal as segment ")
    assert (json.loads(rest.output)["id"], json.loads(rest.output)["rows"]) == (BODY, 4)
    assert len(Journal(running.directory / "journal").sealed()) == 2
    assert run(running.directory, "ls", "--format", "json").output == ""
    assert run(running.directory, "replay", "--all").output == "no dead letters\n"


def test_replay_of_what_is_still_refused_says_why_and_exits_with_one(running: Harness) -> None:
    done = run(running.directory, "replay", "--all")

    assert done.exit_code == 1
    assert f"{LETTER}: kept: the store still refuses it: constraint is violated" in done.output
    assert f"{BODY}: 4 rows put into the journal" in done.output


def test_drop_lets_go_of_it(running: Harness) -> None:
    assert run(running.directory, "drop", LETTER, "--yes").output == f"{LETTER}: dropped\n"
    assert run(running.directory, "drop", BODY, "--yes").exit_code == 0
    assert run(running.directory, "ls", "--format", "json").output == ""


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        pytest.param(["replay"], 2, "expected an ID or --all", id="nothing named"),
        pytest.param(["replay", LETTER, "--all"], 2, "not both", id="too much named"),
        pytest.param(["replay", "../x"], 1, "no dead letter is called '../x'; expected", id="no such letter"),
        pytest.param(
            ["drop", "x", "--yes"], 1, "no dead letter is called 'x'; expected", id="nothing to drop"
        ),
        pytest.param(["drop", "x"], 1, "no dead letter is called 'x'; expected", id="nothing to ask about"),
        pytest.param(["show", "x"], 1, "expected an id that `dead ls` prints", id="nothing to show"),
    ],
)
def test_mistakes_are_told_in_one_line(running: Harness, words: list[str], code: int, why: str) -> None:
    done = run(running.directory, *words)

    assert done.exit_code == code
    assert why in done.output
    assert done.output.count("\n") == 1


def test_without_a_receiver_nothing_is_replayed_or_dropped(harness: Harness) -> None:
    for words in (["replay", LETTER], ["drop", LETTER, "--yes"], ["drop", LETTER]):
        assert run(harness.directory, *words).output.startswith("trace-drain: no receiver runs on")
    assert len(harness.letters) == 1


def test_the_help_of_replay_says_that_an_id_may_be_left_out() -> None:
    assert "dead replay [OPTIONS] [ID]\n" in CliRunner().invoke(main, ["dead", "replay", "--help"]).output
    assert "dead drop [OPTIONS] ID\n" in CliRunner().invoke(main, ["dead", "drop", "--help"]).output


def test_the_receiver_that_is_missing_is_named_as_its_caller_named_it(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('data_dir = "dg"')
    named = ["--config", str(tmp_path / "my.toml")]

    done = CliRunner().invoke(main, ["dead", "drop", "x", *named])
    looking = CliRunner().invoke(main, ["dead", "ls", *named])

    assert f"expected one: `trace-drain serve {' '.join(named)}`\n" in done.output
    assert f"expected one made by `trace-drain serve {' '.join(named)}`:" in looking.output


@pytest.mark.parametrize("path", ["", f"/{LETTER}"])
def test_an_unknown_parameter_is_refused(running: Harness, path: str) -> None:
    async def get() -> int:
        url = json.loads((running.directory / STATE_NAME).read_text())["urls"]["api"]
        async with ClientSession() as session, session.get(f"{url}/api/v1/dead{path}?x=1") as answer:
            return answer.status

    assert asyncio.run(get()) == 400


def test_a_page_of_another_site_cannot_replay(running: Harness) -> None:
    async def post() -> int:
        url = json.loads((running.directory / STATE_NAME).read_text())["urls"]["api"]
        async with (
            ClientSession() as session,
            session.post(f"{url}/api/v1/dead/x/replay", data="x") as answer,
        ):
            return answer.status

    assert asyncio.run(post()) == 415


def test_what_has_no_name_of_ours_is_nothing_that_was_set_aside(harness: Harness) -> None:
    (harness.directory / "aside" / "notes.body").write_text("strange")
    (harness.directory / "dead" / "notes.json").mkdir()

    DeadLetterList(harness.directory).dead.tidy()

    assert run(harness.directory, "ls", "--format", "json").output.count("\n") == 2
