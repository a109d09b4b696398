"""Page of an explanation: what would be sent, the answer with and without the script, how to switch it on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page

from receiver.console.api.access import COOKIE
from receiver.settings import User
from tests.console.ui.test_pages import Document
from tests.platform.explain.conftest import (
    HOSTILE,
    INJECTIONS,
    LIMITED,
    MISSING,
    OTHERS,
    QUERY,
    SECRET,
    TRACE,
    Receiver,
    Start,
    calling,
    spoken,
)
from tests.support.access import OPERATOR, VIEWER, session
from tests.support.browser import accessibility_violations, chromium, faultless_page, needs_chromium
from tests.support.cases import FailedCases, each_case
from tests.support.platform_server import Answer

ANSWER = f"The update met a deadlock [span:{QUERY}]. The cache failed [span:{MISSING}]. <b>Bold</b> is text."


async def shown(receiver: Receiver, trace_id: str = TRACE, user: User = OPERATOR) -> Document:
    """Return the page of a trace."""
    answer = await receiver.client.get(f"/trace/{trace_id}/explain", headers=session(user))
    assert answer.status == 200
    return Document(await answer.text())


async def sent(receiver: Receiver, trace_id: str = TRACE) -> Document:
    """Send the form of the page, as a browser without the script does."""
    form = {"Accept": "text/html", **session(OPERATOR)}
    answer = await receiver.client.post(f"/trace/{trace_id}/explain", data={}, headers=form)
    return Document(await answer.text())


def tags(page: Document, name: str) -> list[dict[str, str | None]]:
    return [attributes for tag, attributes in page.elements if tag == name]


async def test_page_shows_every_byte_before_it_is_sent(start: Start) -> None:
    receiver = await start(spoken("Yes."), input_price=3.0, output_price=15.0)

    page = await shown(receiver)
    assert receiver.gateway.received == []
    await receiver.explained()

    assert receiver.gateway.received[0].body.decode() in page.text
    assert receiver.gateway.url in page.text
    assert re.search(r"[\d,]+ bytes, about [\d,]+ tokens and an image of \d+ bytes", page.text)
    assert re.search(r"about 0\.\d{4} for the first request, at most 0\.3000 in all", page.text)
    assert SECRET not in page.text


async def test_page_says_how_to_switch_explanations_on(start: Start) -> None:
    receiver = await start(spoken("Yes."), api_key="", model="")

    page = await shown(receiver)

    assert "Explanations are off." in page.text
    assert re.findall(r"platform\.\w+(?:\.\w+)?", page.text)[:2] == [
        "platform.api_key",
        "platform.explain.model",
    ]
    assert "explain" not in [form.get("id") for form in tags(page, "form")]


@each_case(("user", "is_linked"), [(VIEWER, False), (OPERATOR, True), (LIMITED, True)])
async def test_trace_page_links_operators_to_the_explanation(
    receiver: Receiver, user: User, *, is_linked: bool
) -> None:
    page = Document(await (await receiver.client.get(f"/trace/{TRACE}", headers=session(user))).text())

    assert (f"/trace/{TRACE}/explain" in page.links) == is_linked


async def test_answer_without_the_script_has_links_and_struck_sentences(start: Start) -> None:
    receiver = await start(calling(("errors", {"filter": "service=web"})), spoken(ANSWER, usage=(100, 20)))

    page = await sent(receiver)

    assert f"/trace/{TRACE}?span={QUERY}" in page.links
    assert f"/trace/{TRACE}?span={MISSING}" not in page.links
    assert len(tags(page, "del")) == 1
    assert "<b>Bold</b> is text." in page.text
    assert "The model has answered." in page.text
    assert 'errors with {"filter": "service=web"}' in page.text


@each_case(
    ("answer", "texts"),
    [
        pytest.param(
            Answer({}, status=500), ["There is no answer: the gateway answered 500"], id="no answer"
        ),
        pytest.param(
            spoken("Wrong cause", is_cut=True),
            ["The answer was cut:", "What arrived is not an explanation."],
            id="cut",
        ),
    ],
)
async def test_page_without_the_script_reports_an_incomplete_answer(
    receiver: Receiver, answer: Answer, texts: list[str]
) -> None:
    receiver.gateway.script(answer)

    page = await sent(receiver)

    assert [text for text in texts if text not in page.text] == []
    assert "The model has answered" not in page.text
    assert "answer cut" in [attributes.get("class") for attributes in tags(page, "p")]


async def test_hostile_texts_stay_text(start: Start) -> None:
    receiver = await start(calling(*[(text, {text: text}) for text in INJECTIONS]), spoken(*INJECTIONS))

    for page in (await shown(receiver, HOSTILE), await sent(receiver, HOSTILE)):
        assert {tag for tag, _ in page.elements} & {"img", "b", "data"} == set()
        assert [link for link in page.links if not link.startswith(("/", "#"))] == []
    assert "<img src=x onerror=alert(1)>" in page.text


async def test_unknown_trace_and_hidden_trace_have_the_same_page(receiver: Receiver) -> None:
    texts = []
    for trace_id in (OTHERS, "e" * 32):
        answer = await receiver.client.get(f"/trace/{trace_id}/explain", headers=session(LIMITED))
        texts.append(re.sub("[be]{32}|State at .* UTC", "", Document(await answer.text()).text))
    assert texts[0] == texts[1]


@asynccontextmanager
async def opened(browser: Browser, receiver: Receiver, trace_id: str = TRACE) -> AsyncIterator[Page]:
    """Log in and open the page."""
    origin = str(receiver.client.make_url("")).rstrip("/")
    value = session(OPERATOR)["Cookie"].partition("=")[2]
    async with faultless_page(browser, origin, viewport={"width": 320, "height": 640}) as page:
        await page.context.add_cookies([{"name": COOKIE, "value": value, "url": origin}])
        await page.goto(f"{origin}/trace/{trace_id}/explain")
        yield page


async def send(page: Page) -> None:
    await page.get_by_role("button", name="Send and explain").click()


async def violations_in_both_themes(page: Page) -> list[str]:
    """Return the violations of accessibility."""
    violations: list[str] = []
    for theme in ("dark", "light"):
        await page.emulate_media(color_scheme=theme)
        violations += await accessibility_violations(page)
    return violations


async def shows_the_answer(browser: Browser, receiver: Receiver) -> None:
    receiver.gateway.script(calling(("errors", {})), spoken(ANSWER, usage=(1_100, 20)))
    async with opened(browser, receiver) as page:
        assert await violations_in_both_themes(page) == []
        await send(page)
        await page.get_by_text("The model has answered.").wait_for()

        answer = page.locator("#answer")
        assert await answer.inner_text() == re.sub(r"\[span:(\w+)\]", r"\1", ANSWER)
        assert await answer.locator("del").inner_text() == f"The cache failed {MISSING}. "
        link = await answer.locator("a").get_attribute("href")
        assert link == f"/trace/{TRACE}?span={QUERY}"
        assert await answer.locator("b").count() == 0
        assert await page.locator("#sent li").count() == 3
        assert await violations_in_both_themes(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def shows_a_cut_answer_as_cut(browser: Browser, receiver: Receiver) -> None:
    receiver.gateway.script(spoken("Wrong cause", is_cut=True))
    async with opened(browser, receiver) as page:
        await send(page)
        await page.get_by_text("What arrived is not an explanation.").wait_for()

        assert "cut" in (await page.locator("#answer").get_attribute("class") or "")


async def stops(browser: Browser, receiver: Receiver) -> None:
    receiver.gateway.script(spoken("It was slow. ", "And", hangs=True))
    async with opened(browser, receiver) as page:
        await send(page)
        await page.get_by_text("It was slow.").wait_for()
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_text("Stopped. What arrived is not an explanation.").wait_for()

        assert await page.get_by_role("button", name="Send and explain").is_enabled()


async def keeps_hostile_texts_as_text(browser: Browser, receiver: Receiver) -> None:
    receiver.gateway.script(calling(*[(text, {text: text}) for text in INJECTIONS]), spoken(*INJECTIONS))
    async with opened(browser, receiver, HOSTILE) as page:
        await send(page)
        await page.get_by_text("The model has answered.").wait_for()

        assert await page.locator("main img, main b").count() == 0
        assert "<img src=x onerror=alert(1)>" in await page.locator("#answer").inner_text()


@needs_chromium
async def test_script_shows_the_answer_as_it_arrives(receiver: Receiver) -> None:
    failed = FailedCases()
    # One browser for all cases, because its start takes most of their time.
    async with chromium() as browser:
        for case in (shows_the_answer, shows_a_cut_answer_as_cut, keeps_hostile_texts_as_text, stops):
            with failed.case(case.__name__):
                await case(browser, receiver)
    failed.raise_all()
