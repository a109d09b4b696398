"""Every page in a browser: accessible in both themes, as wide as the window, and usable without a mouse."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, ViewportSize

from tests.console.ui.conftest import FULLER_URLS, HOSTILE_TRACE, LOOPBACK, PAGE_URLS, WIDE, Client, url_of
from tests.support.browser import (
    COLOUR_RULES,
    accessibility_violations,
    check_themes_and_widths,
    excess_px,
    faultless_page,
    needs_chromium,
)
from tests.support.cases import each_case

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]

PHONE = ViewportSize(width=390, height=844)
LOW = ViewportSize(width=1280, height=300)
ABSENT = "a" * 32
ADD_HEADING_WITH_LINK = """() => {
  const [heading, link] = [document.createElement("h2"), document.createElement("a")];
  link.href = "/";
  link.append("dpl_1");
  heading.append("Events of its deployment ", link);
  document.getElementById("compare").before(heading);
}"""
TABS_MAX = 200
FRAME_PX_MAX = 48
PHONE_FRAME_PX_MAX = 96
ROWS_IN_SIGHT = """(grid) => {
  const frame = grid.getBoundingClientRect();
  const rows = [...grid.querySelectorAll("[role=row]:not([hidden])")];
  return rows
    .map((row) => [row.getBoundingClientRect().top - frame.top, row])
    .filter(([top]) => top > -28 && top < frame.height)
    .map(([top, row]) => [
      Math.round((top + grid.scrollTop) / 28) + 1,
      Number(row.dataset.place),
      Number(row.getAttribute("aria-rowindex")),
    ]);
}"""
"""Returns the expected number, the position and the number of each visible row; a row has 28 pixels."""
CHARTS = (
    "/services?service=web",
    "/services?service=db&operation=SELECT+cart",
    f"/trace/{1:032x}/with/{1_801:032x}?row=0",
    f"/trace/{HOSTILE_TRACE}?show=flame",
    f"/trace/{HOSTILE_TRACE}?show=statistics&by=http.route",
)
PARTS_OF_THE_FRAME = """() => {
  document.querySelector("header .state").textContent = "store unavailable";
  const parts = "nav > a, #pickers select, .times > *, .choices > .menu > summary";
  return [...document.querySelectorAll(`header.frame, header.frame > ${parts}`)].map((part) => {
    const { x, y, width, height } = part.getBoundingClientRect();
    return [part.id || part.name || part.parentElement.id || part.textContent.trim(), [x, y, width, height]];
  });
}"""
"""Returns the name and the box of each part of the frame, with a long text as the state of the receiver."""
RTL = "\u202egnp.exe"
FOCUS_IS_IN_SIGHT = """() => {
  const box = document.activeElement.getBoundingClientRect();
  const isInHeight = box.bottom > 0 && box.top < innerHeight;
  return document.hasFocus() && isInHeight && box.right > 0 && box.left < innerWidth;
}"""


async def show(page: Page, site: Client, url: str) -> None:
    """Open a page and wait until its scripts have drawn."""
    answer = await page.goto(url_of(site, url))
    assert answer is not None
    assert answer.status == 200
    await page.wait_for_selector("#theme:not([hidden])", state="attached")
    if await page.locator("[data-outline]").count():
        await page.wait_for_selector("[role=treegrid] [role=row]")


@pytest.mark.parametrize(
    "url",
    [
        *PAGE_URLS,
        *CHARTS,
        *(pytest.param(url, marks=pytest.mark.fault_tier) for url in FULLER_URLS if url not in CHARTS),
    ],
)
async def test_page_is_accessible_and_fits_in_both_themes_and_widths(
    shop: Client, page: Page, url: str
) -> None:
    await show(page, shop, url)

    await check_themes_and_widths(page)


async def test_frame_is_one_row_whose_parts_are_at_the_same_place_on_every_page(
    shop: Client, page: Page
) -> None:
    places: dict[str, set[tuple[float, ...]]] = {}
    for url in (*PAGE_URLS, "/services?service=web&project=prj_1&deployment=dpl_2"):
        await show(page, shop, url)
        for name, box in await page.evaluate(PARTS_OF_THE_FRAME):
            places.setdefault(name, set()).add(tuple(box))

    assert {"project", "deployment", "ranges", "views", "more", "Receiver"} <= set(places)
    assert {name: boxes for name, boxes in places.items() if len(boxes) > 1} == {}
    assert max(y + height for ((_x, y, _width, height),) in places.values()) <= FRAME_PX_MAX


async def test_frame_is_at_most_96_pixels_high_on_a_phone_and_does_not_scroll(
    shop: Client, page: Page
) -> None:
    await page.set_viewport_size(PHONE)
    sizes = {}
    for url in PAGE_URLS:
        await show(page, shop, url)
        sizes[url] = await page.evaluate(
            "(() => { const nav = document.querySelector('header nav');"
            "return [nav.parentElement.offsetHeight, nav.scrollWidth - nav.clientWidth]; })()"
        )

    wrong = {url: size for url, size in sizes.items() if size[0] > PHONE_FRAME_PX_MAX or size[1] > 0}
    assert wrong == {}
    await page.locator("#more summary").click()
    assert await page.get_by_role("link", name="Compare", exact=True).is_visible()


async def test_rows_are_compact_from_a_choice_in_the_menu_on(shop: Client, page: Page) -> None:
    height = "document.querySelector('main tbody tr').offsetHeight"
    await show(page, shop, "/services")
    before = await page.evaluate(height)
    await page.click("#more summary")
    await page.click("#density")
    await show(page, shop, "/services")

    assert [before, await page.evaluate(height)] == [28, 22]


async def test_menu_of_the_frame_is_accessible_in_both_themes_and_fits_narrow_windows(
    shop: Client, page: Page
) -> None:
    await show(page, shop, "/services")
    await page.click("#more summary")

    await check_themes_and_widths(page)
    await page.keyboard.press("Escape")
    assert await page.locator("#more[open]").count() == 0


@each_case("path", ["/docs", f"/trace/{ABSENT}", "/deployment/absent", "/search?fliter=root"])
async def test_page_of_the_api_or_of_an_error_is_accessible_and_fits_a_phone(
    shop: Client, browser: Browser, path: str
) -> None:
    # Not `faultless_page`, because browsers report each status from 400 as an error.
    page = await browser.new_page(viewport=PHONE, color_scheme="light")
    await page.goto(f"{LOOPBACK}{shop.port}{path}")
    problems = [*await accessibility_violations(page), await excess_px(page)]
    await page.emulate_media(color_scheme="dark")
    problems += await accessibility_violations(page, rules=COLOUR_RULES)
    await page.close()

    assert problems == [0]


async def test_details_that_scroll_and_a_link_in_a_heading_are_accessible(shop: Client, page: Page) -> None:
    await page.set_viewport_size(LOW)
    await show(page, shop, f"/trace/{HOSTILE_TRACE}")
    # As the heading of the events of a deployment, which the receiver of these tests does not fetch.
    await page.evaluate(ADD_HEADING_WITH_LINK)

    assert await page.locator("#span").evaluate("span => span.scrollHeight > span.clientHeight")
    assert await accessibility_violations(page) == []


async def focused(page: Page) -> str:
    """Return the address or the role of the focused element. Fails if the reader could not see the focus."""
    await page.wait_for_function(FOCUS_IS_IN_SIGHT)
    outline: str = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    what: str = await page.evaluate(
        "document.activeElement.getAttribute('href') ?? document.activeElement.getAttribute('role') ?? ''"
    )
    return what


async def tab_to(page: Page, begin: str) -> None:
    """Press Tab until the focused element has an address or role with this beginning."""
    for _ in range(TABS_MAX):
        await page.keyboard.press("Tab")
        if (await focused(page)).startswith(begin):
            return
    pytest.fail(f"{begin}: not reached by {TABS_MAX} presses of Tab")


async def test_arrow_keys_go_from_frame_to_frame_and_enter_opens_the_graph_of_a_frame(
    shop: Client, page: Page
) -> None:
    await show(page, shop, f"/trace/{1:032x}?show=flame")
    await page.locator("#flame a").first.focus()

    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")

    await page.wait_for_selector("#flame a[aria-current]:has-text('SELECT cart')")
    assert "show=flame&frame=" in page.url


async def test_two_spans_of_a_waterfall_are_compared_by_keyboard(shop: Client, page: Page) -> None:
    await show(page, shop, f"/trace/{1:032x}")

    await page.keyboard.press("m")
    await page.keyboard.press("j")
    await page.keyboard.press("m")

    await page.wait_for_selector("text=Only the chosen spans and those below them")


async def test_span_of_a_failed_trace_is_reached_by_keyboard_alone(shop: Client, page: Page) -> None:
    await show(page, shop, "/?project=prj_1")

    await tab_to(page, "/errors?")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/errors?**")
    await tab_to(page, "/trace/")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("[role=treegrid] [role=row]")
    await page.keyboard.press("j")
    await page.wait_for_selector("#span h2:text('SELECT cart')")
    await page.keyboard.press("e")
    await page.wait_for_selector("#span dd :text('deadlock on row')")
    await tab_to(page, "treegrid")
    await page.keyboard.press("ArrowDown")

    await page.wait_for_selector("#span h2:text('SELECT cart')")


async def test_shortcut_of_two_keys_works_even_if_the_page_uses_the_second_key(
    shop: Client, page: Page
) -> None:
    await show(page, shop, f"/trace/{HOSTILE_TRACE}")

    await page.keyboard.press("g")
    await page.keyboard.press("e")

    await page.wait_for_url("**/errors?**")


@each_case(
    ("url", "keys"),
    [("/services", ["?", "g e", "Ctrl K"]), (f"/trace/{HOSTILE_TRACE}", ["?", "e"]), ("/tail", ["Space"])],
)
async def test_question_mark_lists_the_keys(shop: Client, page: Page, url: str, keys: list[str]) -> None:
    await show(page, shop, url)

    await page.keyboard.press("?")
    await page.wait_for_selector("dialog[open]")

    listed = await page.locator("dialog kbd").all_text_contents()
    assert set(keys) <= set(listed)
    assert len(listed) == len(set(listed))
    await focused(page)
    await page.keyboard.press("Escape")
    await page.wait_for_selector("dialog", state="hidden")


async def test_span_can_be_searched_and_opened_without_scripts(shop: Client, browser: Browser) -> None:
    async with faultless_page(browser, LOOPBACK, viewport=WIDE, java_script_enabled=False) as page:
        await page.goto(url_of(shop, "/search"))
        await page.fill("#filter", "service=web status=error")
        await page.click("text=Search >> nth=-1")
        await page.click("tbody th a >> nth=0")
        await page.click(".waterfall a:text('SELECT cart')")

        assert await page.text_content("#span h2") == "SELECT cart"


async def test_text_of_any_attribute_is_found_and_marked_in_a_trace(shop: Client, page: Page) -> None:
    await show(page, shop, f"/trace/{1:032x}")
    rows = await page.locator("[role=row]:visible").count()
    await page.fill("input[placeholder='find in this trace']", "/CART")
    await page.locator("[role=status]", has_text="1 match").wait_for()

    assert await page.locator("[role=row]:visible").count() == rows == 2
    assert await page.locator(".match .name").all_inner_texts() == ["GET /cart"]

    await page.fill("input[placeholder='find in this trace']", "SELECT")
    await page.keyboard.press("Enter")
    await page.locator("#span h2", has_text="SELECT cart").wait_for()
    await page.check("text=only matches")
    assert "2 of 2 spans shown" in str(await page.text_content("[role=status]"))


async def test_text_that_reverses_the_direction_ends_with_its_element(shop: Client, page: Page) -> None:
    await show(page, shop, f"/trace/{HOSTILE_TRACE}")
    row = page.locator("[role=row]", has_text=RTL)

    service = await row.locator(".service").bounding_box()
    name = await row.locator(".name").bounding_box()

    # Both have the text that reverses; the service is still left of the name.
    assert service is not None
    assert name is not None
    assert service["x"] < name["x"]


async def test_scrolled_rows_show_the_spans_of_their_positions(shop: Client, page: Page) -> None:
    await page.set_viewport_size(LOW)
    await show(page, shop, f"/trace/{HOSTILE_TRACE}")
    grid = page.locator("[role=treegrid]")
    await grid.evaluate("grid => { grid.style.height = grid.style.minHeight = '56px'; }")

    for top in (140, 400, 60, 9_999):
        await grid.evaluate("(grid, top) => { grid.scrollTop = top; }", top)
        await page.evaluate("new Promise(requestAnimationFrame)")
        rows = await grid.evaluate(ROWS_IN_SIGHT)

        assert len(rows) >= 2
        assert all(number == position + 1 == aria for number, position, aria in rows)
