"""Command line of `make gallery`: screenshots of the pages over a web shop's spans, for docs/gallery.md."""

from __future__ import annotations

import re
import tempfile
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import click
from playwright.sync_api import Page as BrowserPage

from benchmarks.store.workspace import log
from benchmarks.ui.browse import chromium, new_page
from benchmarks.ui.receiver import running_receiver
from benchmarks.ui.shop import PARAMETERS, shop
from receiver.ui.page import Page
from receiver.ui.pages import PAGES

ROOT = Path(__file__).parents[2]
SHOP_TRACES = 3_000
THEMES = ("light", "dark")
WEBP_QUALITY = 80
FAILED, NEWEST = "deployment=dpl_8f2 service=cart status=error trace:spans>7", "service=payments"
"""Filters of the traces that are shown."""
KEYS: Mapping[str, str] = {"trace": "e"}
LEFT_OUT = {"connect", "tail", "dead-letter"}
"""Pages that show more while spans arrive, and the page of what the shop does not have."""
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
        lines += [
            f"![{shot.page.title}, {theme}](gallery/{shot.file(theme)}#only-{theme})" for theme in THEMES
        ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs", show_default=True)
def main(out: Path) -> None:
    """Write the gallery, with a screenshot of each page in each theme."""
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
    log(f"screenshots written to {directory}")


def _take(page: BrowserPage, url: str, keys: str, path: Path) -> None:
    page.goto(url)
    page.wait_for_selector("#theme:not([hidden])")
    for key in keys:
        page.wait_for_selector("[role=treegrid] [role=row]")
        page.keyboard.press(key)
    page.wait_for_load_state("networkidle")
    # Half the size of a PNG; only the protocol of the browser writes WebP.
    taken = page.context.new_cdp_session(page).send(
        "Page.captureScreenshot", {"format": "webp", "quality": WEBP_QUALITY}
    )
    path.write_bytes(b64decode(taken["data"]))


if __name__ == "__main__":
    main()
