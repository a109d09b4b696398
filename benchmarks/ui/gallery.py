"""Command line of `make gallery`: screenshots of the pages over a web shop's spans, and of a tour."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import click
from playwright.sync_api import Page as BrowserPage

from benchmarks.store.workspace import log
from benchmarks.ui.browse import chromium, new_page
from benchmarks.ui.receiver import running_receiver
from benchmarks.ui.screenshot import THEMES, themed_images, write_screenshot
from benchmarks.ui.shop import PARAMETERS, shop
from benchmarks.ui.tour import take_tour
from receiver.console.ui.page import Page
from receiver.console.ui.pages.table import PAGES

ROOT = Path(__file__).parents[2]
SHOP_TRACES = 3_000
FAILED, NEWEST = "deployment=dpl_8f2 service=cart status=error trace:spans>7", "service=payments"
"""Filters of the traces that are shown."""
KEYS: Mapping[str, str] = {"trace": "e"}
LEFT_OUT = {"connect", "tail", "dead-letter", "platform", "deployment", "explanation"}
"""Pages that show more while spans arrive, of what the shop does not have, and that the tour shows."""
HEAD = """\
# Gallery

Written by `make gallery`: the pages of the API's port over the spans of a small web shop, whose newest
deployment is worse than the one before. The site shows them in its own theme, light or dark."""


class Shot(NamedTuple):
    """A screenshot of a page: its address, and the keys that are pressed before."""

    page: Page
    url: str
    keys: str

    def file(self, theme: str) -> str:
        """Return the name of the file."""
        return f"{self.page.name}-{theme}.webp"


def shots(*trace_ids: str) -> Iterator[Shot]:
    """Yield the screenshots in the order of the navigation. Addresses with parts get the ids in order."""
    for page in PAGES.values():
        if page.name in LEFT_OUT:
            continue
        ids = iter(trace_ids)
        path = re.sub(r"\{\w+\}", lambda _part, ids=ids: next(ids), page.path)  # type: ignore[misc]  # a default value
        query = urlencode(PARAMETERS.get(page.name, {}))
        yield Shot(page, f"{path}?{query}" if query else path, KEYS.get(page.name, ""))


def gallery(found: Iterable[Shot]) -> str:
    """Return the text of docs/gallery.md."""
    lines = [HEAD]
    for shot in found:
        lines.append(f"\n## {shot.page.title}: {shot.page.question}\n")
        lines += themed_images(shot.page.title, "gallery", shot.file)
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs", show_default=True)
def main(out: Path) -> None:
    """Write the gallery and the tour, with a screenshot of each page in each theme."""
    directory = out / "gallery"
    directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="gallery-") as data,
        running_receiver(Path(data)) as receiver,
        chromium() as browser,
    ):
        receiver.send(shop(SHOP_TRACES))
        failed, newest = (
            receiver.wait_for("trace_id", "search", urlencode({"since": "1h", "limit": "1", "filter": text}))
            for text in (FAILED, NEWEST)
        )
        found = list(shots(failed, newest))
        for theme in THEMES:
            with new_page(browser, color_scheme=theme) as page:
                for shot in found:
                    _take(page, receiver.pages + shot.url, shot.keys, directory / shot.file(theme))
        (out / "gallery.md").write_text(gallery(found))
        take_tour(browser, Path(data) / "demo", out)
    log(f"screenshots written to {directory} and {out / 'tour'}")


def _take(page: BrowserPage, url: str, keys: str, path: Path) -> None:
    page.goto(url)
    page.wait_for_selector("#theme:not([hidden])", state="attached")
    for key in keys:
        page.wait_for_selector("[role=treegrid] [role=row]")
        page.keyboard.press(key)
    write_screenshot(page, path)


if __name__ == "__main__":
    main()
