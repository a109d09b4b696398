"""Pages of traces and deployments that are not stored: status 404, and links to next steps."""

from __future__ import annotations

import pytest

from tests.console.ui.conftest import Client
from tests.console.ui.test_pages import page_of

ABSENT = "a" * 32
STORED = f"{1:032x}"


@pytest.mark.parametrize("path", [f"/trace/{ABSENT}", f"/trace/{STORED}/with/{ABSENT}"])
async def test_trace_that_is_not_stored_has_status_404_and_next_steps(site: Client, path: str) -> None:
    page = await page_of(site, path, 404)

    assert "A span can be read a second or two after its 200" in page.text
    assert {path, "/search?since=1h", "/search?since=30d", "/receiver"} <= set(page.links)


async def test_deployment_that_is_not_stored_has_status_404_and_next_steps(site: Client) -> None:
    page = await page_of(site, "/deployment/absent", 404)

    assert "No event and no span of deployment absent" in page.text
    assert "/deployment/absent?since=30d" in page.links
    assert {"/search", "/compare"} <= {link.partition("?")[0] for link in page.links}


async def test_deployment_without_events_of_a_kind_is_not_missing(site: Client) -> None:
    page = await page_of(site, "/deployment/dpl_1?kind=build")

    assert "No such event is stored in this time range" in page.text
