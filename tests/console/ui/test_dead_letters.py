"""Dead letters on the pages: shown, replayed and dropped by forms, by operators only, and logged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from aiohttp import ClientResponse
from structlog.testing import capture_logs

from receiver.console.ui.results import RESULTS_MAX, Results
from receiver.dead_letters.directory import DeadLetterList, DeadLetters, Reason
from receiver.journal.quarantine import QuarantineFiles, QuarantineNote
from receiver.model import ContentKind, Delivery
from tests.console.ui.conftest import HOSTILE, StartReceiver
from tests.console.ui.test_pages import Document
from tests.dead_letters.test_replay import POISON_ID, Workspace
from tests.support.access import OPERATOR, VIEWER, Client, session
from tests.support.segments import day_of

HTML = {"Accept": "text/html"}
PATH = f"/receiver/dead/{POISON_ID}"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path).with_poison()


async def document(answer: ClientResponse, status: int = 200) -> Document:
    assert answer.status == status, await answer.text()
    return Document(await answer.text())


async def send(client: Client, action: str, path: str = PATH, **headers: str) -> ClientResponse:
    return await client.post(
        f"{path}/{action}", data={}, headers={**HTML, **session(OPERATOR), **headers}, allow_redirects=False
    )


def forms_of(page: Document) -> list[str]:
    forms = page.all("form")
    return [attributes["action"] or "" for attributes in forms if attributes["method"] == "post"]


async def test_dead_letter_is_shown_with_its_reason_and_first_rows(
    workspace: Workspace, start: StartReceiver
) -> None:
    client = await start(replayer=workspace.replayer)

    page = await document(await client.get(PATH, headers=session(OPERATOR)))

    (entry,) = DeadLetterList(workspace.directory).entries()
    assert entry.text in page.text
    assert "ClickHouse refused these rows one by one" in page.text
    assert '"SpanId": "0000000000000003"' in page.text
    assert f'"TraceId": "{3:032x}"' in page.text
    assert {f"{PATH}/replay"} <= set(forms_of(page))


async def test_replay_is_done_once_and_its_result_is_shown_after_the_redirect(
    workspace: Workspace, start: StartReceiver
) -> None:
    client = await start(replayer=workspace.replayer)

    answer = await send(client, "replay")
    page = await document(await client.get(answer.headers["Location"], headers=session(OPERATOR)))
    again = await send(client, "replay")
    workspace.drain()

    assert answer.status == 303
    assert f"3 rows of {POISON_ID} moved into the journal as segment" in page.text
    assert "None: the store accepted every row." in page.text
    gone = await document(again, 404)
    assert "No dead letter or quarantined body has this id" in gone.text
    assert PATH not in gone.links
    assert workspace.harness.copies == {1: 1, 2: 1, 3: 1}


async def test_drop_requires_a_confirmation(workspace: Workspace, start: StartReceiver) -> None:
    client = await start(replayer=workspace.replayer)

    confirmation = await document(await client.get(f"{PATH}?confirm=drop", headers=session(OPERATOR)))
    assert DeadLetterList(workspace.directory).entries() != []
    answer = await send(client, "drop")
    page = await document(await client.get(answer.headers["Location"], headers=session(OPERATOR)))

    assert "Drop 3 rows permanently" in confirmation.text
    assert f"{PATH}/drop" in forms_of(confirmation)
    assert answer.status == 303
    assert f"{POISON_ID} is deleted." in page.text
    assert DeadLetterList(workspace.directory).entries() == []


async def test_replay_that_the_store_refuses_is_explained_and_keeps_the_dead_letter(
    workspace: Workspace, start: StartReceiver
) -> None:
    workspace.harness.store.poisonous_days = {day_of(2)}
    client = await start(replayer=workspace.replayer)

    page = await document(await send(client, "replay"), 409)

    assert "This is not possible now" in page.text
    assert "The store still refuses the rows" in page.text
    assert PATH in page.links
    assert [entry.id for entry in DeadLetterList(workspace.directory).entries()] == [POISON_ID]


@pytest.mark.parametrize("action", ["replay", "drop"])
async def test_forms_are_for_operators_of_this_origin_and_logged(
    workspace: Workspace, start: StartReceiver, action: str
) -> None:
    client = await start(replayer=workspace.replayer)

    with capture_logs() as logged:
        by_viewer = await client.post(
            f"{PATH}/{action}", data={}, headers=session(VIEWER), allow_redirects=False
        )
        of_others = await send(client, action, Origin="https://evil.example")
        no_form = await client.post(f"{PATH}/{action}", json={}, headers=session(OPERATOR))
        without_session = await client.post(f"{PATH}/{action}", data={})
        done = await send(client, action)

    refused = [by_viewer.status, of_others.status, no_form.status, without_session.status]
    assert (refused, done.status) == ([403, 403, 415, 401], 303)
    changes = [
        (line["path"], line["name"], line["status"]) for line in logged if line["event"] == "change requested"
    ]
    path = f"{PATH}/{action}"
    assert changes == [(path, "vera", 403), (path, "otto", 415), (path, "otto", 303)]


async def test_viewer_sees_a_dead_letter_without_actions(workspace: Workspace, start: StartReceiver) -> None:
    client = await start(replayer=workspace.replayer)

    for path in ("/receiver", PATH, f"{PATH}?confirm=drop"):
        page = await document(await client.get(path, headers=session(VIEWER)))
        assert not [action for action in forms_of(page) if action.startswith("/receiver/dead/")]


@pytest.mark.usefixtures("whole_pages")
async def test_unknown_dead_letter_is_answered_404_in_the_frame(start: StartReceiver) -> None:
    page = await document(await (await start()).get("/receiver/dead/x", headers=session(VIEWER)), 404)

    assert "no dead letter or quarantined body has this id" in page.text


async def test_texts_of_a_dead_letter_stay_text(tmp_path: Path, start: StartReceiver) -> None:
    reason = Reason(segment="0-1", cause=HOSTILE[0], text=HOSTILE[1], rows=1, at="2026-11-22T12:00:00")
    DeadLetters(tmp_path / "dead").keep(b"not a segment", ".native.lz4", reason, name=HOSTILE[1])
    client = await start()

    listed = await document(await client.get("/receiver", headers=session(OPERATOR)))
    link = next(link for link in listed.links if link.startswith("/receiver/dead/"))
    page = await document(await client.get(link, headers=session(OPERATOR)))

    assert "The content is not shown: it has no readable row." in page.text
    assert HOSTILE[0] in page.text
    assert HOSTILE[1] in page.text
    assert not page.tags & {"img"}


@pytest.mark.parametrize(
    ("codings", "encode", "text"),
    [
        ((), bytes, '{"a": "é"}·\n'),
        (("gzip",), gzip.compress, '{"a": "é"}·\n'),
        (("snappy",), bytes, "The content is not shown: it is compressed with snappy."),
        (("gzip",), bytes, "The content is not shown: it cannot be decoded: error."),
    ],
)
async def test_beginning_of_a_body_that_crashed_the_decoder_is_shown(
    tmp_path: Path, start: StartReceiver, codings: tuple[str, ...], encode: object, text: str
) -> None:
    body = '{"a": "é"}\x00\n'.encode()
    sent = gzip.compress(body) if encode is gzip.compress else body
    delivery = Delivery("shop", sent, ContentKind.JSON, codings, 0, strict=False, body_bytes_max=1 << 20)
    bodies = QuarantineFiles(tmp_path / "aside")
    bodies.write(bodies.path_of("ab" * 16, delivery), sent, QuarantineNote("shop"))

    page = await document(await (await start()).get(f"/receiver/dead/{'ab' * 16}", headers=session(VIEWER)))

    assert text in page.text
    assert "The decoder crashed on this body" in page.text


def test_oldest_result_is_evicted_first() -> None:
    results = Results()

    keys = [results.keep(str(number)) for number in range(RESULTS_MAX + 1)]

    assert results.result_of(keys[0]).text == ""
    assert results.result_of(keys[1]).text == "1"
    assert results.result_of("unknown").text == ""
