"""Tests of the webhook route: signature, limits and answers; every 200 is on disk."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from receiver.errors import DeadlinePassed
from receiver.platform.webhooks.inbox import Inbox
from receiver.platform.webhooks.keeper import WebhookKeeper
from receiver.platform.webhooks.webhook import Webhook as StoredWebhook
from receiver.settings import KIB, Drain, Limits, Webhook
from tests.support.cases import each_case
from tests.support.intake import on_uvloop, request
from tests.support.webhooks import NOW_MS, PATH, SECRET, SETTINGS, document, post, signature, webhook_intake

BODY = document("wh_1")


def ids(data_dir: Path) -> list[str]:
    return [webhook.id for webhook in Inbox(data_dir).waiting()]


def test_p50_each_named_webhook_is_stored_before_it_is_acknowledged(tmp_path: Path) -> None:
    names = (
        "project.created",
        "project.removed",
        "integration-configuration.removed",
        "integration-configuration.scope-change-confirmed",
    )

    @on_uvloop
    async def run() -> None:
        async with webhook_intake(tmp_path) as intake:
            for name in names:
                assert (await post(intake, document(name, name))).status == 200
        assert intake.counted("webhooks", "200") == 4
        assert intake.counted("deliveries") == 0
        assert intake.admission.bytes_in_flight == 0

    run()
    assert {webhook.type for webhook in Inbox(tmp_path).waiting()} == set(names)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"x_platform_signature": ""}, 401, id="no signature"),
        pytest.param({"x_platform_signature": signature(BODY, "other")}, 403, id="another secret"),
        pytest.param({"x_platform_signature": signature(BODY + b" ")}, 403, id="another body"),
        pytest.param({"x_platform_signature": signature(BODY)[:-1]}, 403, id="shortened"),
        pytest.param({"x_platform_signature": "é"}, 403, id="not ASCII"),
        pytest.param({"content_type": ""}, 415, id="no content type"),
        pytest.param({"content_type": "application/x-protobuf"}, 415, id="protobuf"),
        pytest.param({"content_type": "text/plain"}, 415, id="text"),
        pytest.param({"content_type": "application/x-ndjson"}, 415, id="several documents"),
        pytest.param({"content_encoding": "gzip"}, 415, id="compressed"),
        pytest.param({"content_type": "application/json; charset=utf-8"}, 200, id="charset"),
    ],
)
@on_uvloop
async def test_webhook_is_refused_without_its_signature_or_media_type(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with webhook_intake(tmp_path) as intake:
        answer = await post(intake, BODY, **headers)

    assert answer.status == status
    # Without the types of deliveries.
    is_wrong_type = b"a webhook has another content type or is compressed; expected plain JSON" in answer.body
    assert is_wrong_type == (status == 415)
    assert ids(tmp_path) == (["wh_1"] if status == 200 else [])
    assert intake.counted("webhooks", str(status)) == 1
    assert intake.counted("deliveries") == 0


@each_case(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="incomplete"),
        pytest.param(BODY + BODY, id="two documents"),
        pytest.param(b'{"id": "\xff"}', id="not UTF-8"),
        pytest.param(b'{"id": "\\ud800"}', id="half a surrogate pair"),
        pytest.param(b"[" * 100_000, id="nested"),
        pytest.param(b"[" * 65 + b"]" * 65, id="nested over the limit"),
        pytest.param(b'{"createdAt": ' + b"9" * 100_000 + b"}", id="long number"),
    ],
)
@on_uvloop
async def test_signed_body_that_is_not_json_is_refused(tmp_path: Path, body: bytes) -> None:
    async with webhook_intake(tmp_path) as intake:
        answer = await post(intake, body)

    assert answer.status == 400
    assert "webhook" in json.loads(answer.body)["message"]
    assert ids(tmp_path) == []


@on_uvloop
async def test_deepest_webhook_that_is_acknowledged_can_be_applied(tmp_path: Path) -> None:
    async with webhook_intake(tmp_path) as intake:
        statuses = [(await post(intake, b"[" * depth + b"]" * depth)).status for depth in (64, 980)]

    assert statuses == [200, 400]
    # A thread with a deeper stack than the one that accepted it.
    assert len(_at_depth(200, lambda: Inbox(tmp_path).waiting())) == 1


def _at_depth(depth: int, call: Callable[[], list[StoredWebhook]]) -> list[StoredWebhook]:
    return _at_depth(depth - 1, call) if depth else call()


@on_uvloop
async def test_p51_json_of_any_form_is_acknowledged_and_kept(tmp_path: Path) -> None:
    bodies = [b"[]", b"1", b'"text"', b"null", b"{}", b'{"id": 7, "type": ["x"], "createdAt": "never"}']

    async with webhook_intake(tmp_path) as intake:
        statuses = [(await post(intake, body)).status for body in (*bodies, *bodies)]

    assert statuses == [200] * 12
    # The same bytes again are a retry, even if they have no id.
    assert sorted(bytes(webhook.body) for webhook in Inbox(tmp_path).waiting()) == sorted(bodies)


@on_uvloop
async def test_every_configured_secret_is_accepted_during_a_rotation(tmp_path: Path) -> None:
    rotating = msgspec.structs.replace(SETTINGS, secrets=("old", "new"))

    async with webhook_intake(tmp_path, rotating) as intake:
        statuses = [
            (await post(intake, document(secret), secret)).status for secret in ("old", "new", SECRET)
        ]

    assert statuses == [200, 200, 403]
    assert sorted(ids(tmp_path)) == ["new", "old"]


@on_uvloop
async def test_webhook_that_is_sent_again_is_acknowledged_and_stored_once(tmp_path: Path) -> None:
    async with webhook_intake(tmp_path) as intake:
        statuses = [(await post(intake, body)).status for body in (BODY, BODY, document("wh_1", "other"))]

    assert statuses == [200, 200, 200]
    assert [webhook.type for webhook in Inbox(tmp_path).waiting()] == ["project.created"]


@on_uvloop
async def test_wrong_signature_of_a_webhook_is_logged_as_that_of_a_webhook(tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with webhook_intake(tmp_path) as intake:
            await post(intake, BODY, secret="another")

    [line] = [line for line in logged if line["event"] == "webhook refused"]
    assert line["error"].endswith("does not match the body with any of the secrets of platform.webhook")


@on_uvloop
async def test_body_over_the_limit_of_webhooks_is_refused(tmp_path: Path) -> None:
    small = msgspec.structs.replace(SETTINGS, body_bytes_max=2 * KIB)

    async with webhook_intake(tmp_path, small) as intake:
        statuses = [(await post(intake, b" " * size + BODY)).status for size in (0, 2 * KIB)]
        chunked = request(
            b"%x\r\n" % 3_000 + b" " * 3_000 + b"\r\n0\r\n\r\n",
            PATH,
            content_type="application/json",
            content_length="",
            transfer_encoding="chunked",
            x_platform_signature="0" * 40,
        )
        statuses.append((await intake.exchange(chunked)).status)

    assert statuses == [200, 413, 413]


@pytest.mark.parametrize(
    "limits",
    [pytest.param({"waiting_max": 2}, id="number"), pytest.param({"waiting_bytes_max": 500}, id="bytes")],
)
@on_uvloop
async def test_inbox_at_its_limit_answers_503_and_takes_retries(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    limited = msgspec.structs.replace(SETTINGS, **limits)

    async with webhook_intake(tmp_path, limited) as intake:
        answers = [await post(intake, document(name)) for name in ("a", "b", "c", "a")]

    assert [answer.status for answer in answers] == [200, 200, 503, 200]
    assert answers[2].headers["retry-after"] == "2"
    assert "the limit is" in json.loads(answers[2].body)["message"]
    assert intake.counted("refusals", "inbox_full") == 1


class BrokenInbox(Inbox):
    """An inbox on a disk that fails."""

    def keep(self, _webhook: StoredWebhook, _limits: Webhook) -> bool:
        raise OSError(28, "No space left on device", "/data/webhooks/x")


@on_uvloop
async def test_disk_error_is_answered_503_without_its_path(tmp_path: Path) -> None:
    async with webhook_intake(tmp_path, inbox=BrokenInbox(tmp_path)) as intake:
        answer = await post(intake, BODY)

    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert b"/data" not in answer.body


class SlowInbox(Inbox):
    """An inbox on a disk that writes a webhook when the test lets it."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.kept: list[str] = []
        self.may_continue = threading.Event()

    def keep(self, webhook: StoredWebhook, _limits: Webhook) -> bool:
        self.kept.append(webhook.id)
        return self.may_continue.wait(20)


@on_uvloop
async def test_hanging_disk_is_answered_503_at_the_deadline(tmp_path: Path) -> None:
    hanging = SlowInbox(tmp_path)
    async with webhook_intake(tmp_path, inbox=hanging, limits=Limits(answer_deadline_s=0.1)) as intake:
        answer = await post(intake, BODY)
    hanging.may_continue.set()

    assert answer.status == 503
    assert intake.counted("refusals", "deadline_passed") == 1


@on_uvloop
async def test_other_methods_are_refused_at_the_path_of_webhooks(tmp_path: Path) -> None:
    async with webhook_intake(tmp_path) as intake:
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            connection = await intake.connect()
            connection.writer.write(request(b"", PATH, method, content_type="", content_length=""))
            answer = await connection.answer(bodyless=method == "HEAD")
            await connection.close()
            assert answer.status == 405, method


@on_uvloop
async def test_delivery_and_webhooks_alternate_on_one_connection(tmp_path: Path) -> None:
    spans = request(authorization="Bearer t")
    named = {"content_type": "application/json", "x_platform_signature": signature(BODY)}
    webhook = request(BODY, PATH, **named)

    async with webhook_intake(tmp_path, SETTINGS, None, Drain(name="d", tokens=("t",))) as intake:
        connection = await intake.connect()
        statuses = []
        for sent in (spans, webhook, webhook, spans, spans, webhook):
            connection.writer.write(sent)
            statuses.append((await connection.answer()).status)
        await connection.close()

    assert statuses == [200] * 6
    assert (intake.counted("deliveries", "d", "200"), intake.counted("webhooks", "200")) == (3, 3)
    assert len(intake.core.deliveries) == 3


@on_uvloop
async def test_webhook_that_cannot_be_written_in_time_is_not_written_late(tmp_path: Path) -> None:
    slow = SlowInbox(tmp_path)
    keeper = WebhookKeeper(slow, lambda: NOW_MS * 1_000_000)

    late = (keeper.keep(SETTINGS, 0.1, document(name)) for name in ("a", "b", "c"))
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    slow.may_continue.set()
    # The thread works in order: it has passed the others when this one is answered.
    await keeper.keep(SETTINGS, 60.0, document("d"))

    assert [type(outcome) for outcome in outcomes] == [DeadlinePassed] * 3
    # The first may have been begun in time.
    assert slow.kept in (["a", "d"], ["d"])
