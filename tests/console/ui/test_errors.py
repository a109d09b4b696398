"""Errors page: each number and name of a group links to the spans behind it."""

from __future__ import annotations

import html
import re
from urllib.parse import parse_qs, urlsplit

import orjson

from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.ui.pages.errors import MESSAGE_CHARS_MAX, group_filter
from tests.console.ui.conftest import TIMES, Client


async def test_number_of_a_group_links_to_as_many_spans(site: Client) -> None:
    text = await (await site.get("/errors?project=prj_1", params=TIMES)).text()
    cells = re.findall(r'<tr>\s*<td class="number"><a href="([^"]+)">([\d,]+)</a>', text)
    of_deployments = re.findall(r'<a href="([^"]+)">dpl_\d: ([\d,]+)</a>', text)

    assert cells
    assert of_deployments
    for link, count in [*cells, *of_deployments]:
        query = parse_qs(urlsplit(html.unescape(link)).query)
        spans = {name: query[name][0] for name in ("filter", "since", "until")}
        answer = await site.get("/api/v1/spans", params={**spans, "limit": "1000"})
        lines = (await answer.read()).splitlines()
        assert answer.status == 200, lines
        assert orjson.loads(lines[-1])["end"]["count"] == int(count.replace(",", "")), spans


async def test_first_and_last_time_of_a_group_link_to_its_traces_at_this_time(site: Client) -> None:
    text = await (await site.get("/errors?project=prj_1", params=TIMES)).text()
    links = re.findall(r'<td><a href="([^"]+)"><time datetime="([^"]+)"', text)

    assert links
    for link, time in links:
        query = parse_qs(urlsplit(html.unescape(link)).query)
        spans = {name: query[name][0] for name in ("filter", "since", "until")}
        lines = (await (await site.get("/api/v1/spans", params=spans)).read()).splitlines()
        assert orjson.loads(lines[0])["Timestamp"][:19] == time[:19].replace("T", " "), spans


def test_filter_of_a_group_is_valid_for_any_message() -> None:
    for message in ("", 'a "b" * \\ <number>', "<text>" * 200, "word <number> " * 90, "\\" * 1_000, "a\0b"):
        text = group_filter({"service": "a*b", "type": 'x"*', "message": message})

        assert parse_filter(text)
        assert len(text) < 3 * MESSAGE_CHARS_MAX
