"""Installations that network, platform or disk do not complete: each error says how to go on."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.support.access import Client
from tests.support.cases import each_case
from tests.support.faulty_disk import WRITE_CALLS, DiskFault, process_with
from tests.support.installing import begin, come_back, refusal, shown, stored, token_of
from tests.support.token_server import TOKEN, PlatformServer


def disk_full() -> OSError:
    return OSError(errno.ENOSPC, "disk full")


@each_case("status", [pytest.param(400, id="refused"), pytest.param(401, id="wrong secret"), 503, 0])
async def test_p32_failed_exchange_is_explained_and_not_repeated(
    client: Client, platform: PlatformServer, tmp_path: Path, status: int
) -> None:
    platform.status = status
    platform.forms.clear()
    code = f"code-{status}"

    text = await refusal(await come_back(client, code=code, state=await begin(client)), 502)

    assert "The platform gave no token" in text
    assert "The code may be spent and is not sent again, so begin again" in text
    assert ("the code may be used up" in text) == (status in {0, 503})
    assert "try again" not in text
    assert "secret of the client" not in text
    assert len(platform.forms) == 1
    assert stored(tmp_path) == []


@each_case(
    ("error", "reason"),
    [
        ("access_denied", "The installation was declined on the platform"),
        ("<b>", "The platform reports an error instead of a code"),
    ],
)
async def test_p31_error_in_place_of_a_code_is_explained(
    client: Client, platform: PlatformServer, error: str, reason: str
) -> None:
    text = await refusal(await come_back(client, error=error), 400)

    assert reason in text
    assert "nothing was changed" in text
    assert platform.forms == []


async def test_p32_answer_without_a_token_is_refused(
    client: Client, platform: PlatformServer, tmp_path: Path
) -> None:
    del platform.answer["access_token"]

    await refusal(await come_back(client, code="code-1", state=await begin(client)), 502)

    assert stored(tmp_path) == []


async def test_full_disk_before_the_exchange_spends_no_code(
    client: Client, platform: PlatformServer, tmp_path: Path
) -> None:
    state = await begin(client)
    fault = DiskFault(WRITE_CALLS, 1, is_permanent=True, error=disk_full)

    with process_with(fault):
        answer = await come_back(client, code="code-1", state=state)

    assert "Nothing was sent to the platform".lower() in (await refusal(answer, 503)).lower()
    assert platform.forms == []
    assert (await come_back(client, code="code-1", state=state)).status == 303
    assert token_of(tmp_path) == TOKEN


async def test_full_disk_after_the_exchange_says_that_the_token_is_lost(
    client: Client, platform: PlatformServer, tmp_path: Path
) -> None:
    state = await begin(client)
    writes = DiskFault(frozenset({"write"}), 2, is_permanent=True, error=disk_full)

    with process_with(writes):
        answer = await come_back(client, code="code-1", state=state)

    assert "the token is lost, so free disk space" in await refusal(answer, 502)
    assert len(platform.forms) == 1
    assert stored(tmp_path) == []
    assert token_of(tmp_path) == ""


async def test_token_that_is_not_stored_is_reported_on_the_page(client: Client) -> None:
    state = await begin(client)
    # The code, the record, and then the token.
    writes = DiskFault(frozenset({"write"}), 3, is_permanent=True, error=disk_full)

    with process_with(writes):
        await refusal(await come_back(client, code="code-1", state=state), 502)

    page = await shown(client)
    assert "icfg_a1 on team team_1 cannot be used: the token was not stored: install again" in page.text
