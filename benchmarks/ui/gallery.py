"""Command line of `make gallery`: screenshots of the pages over a web shop's spans, for docs/gallery.md."""

from __future__ import annotations

import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import click
from playwright.sync_api import Browser, Page

from benchmarks.store.workspace import log
from benchmarks.ui.browse import chromium, new_page
from benchmarks.ui.receiver import Receiver, running_receiver
from benchmarks.ui.shop import shop

ROOT = Path(__file__).parents[2]
SHOP_TRACES = 3_000
THEMES = ("light", "dark")
WEBP_QUALITY = 80
FAILED = "service=cart status=error"


class Shot(NamedTuple):
    """A screenshot: what it shows, and the keys that are pressed before."""

    name: str
    title: str
    path: str
    keys: tuple[str, ...] = ()


def shots(trace_id: str) -> Iterator[Shot]:
    """Yield the screenshots in the order of the gallery. `trace_id`: a failed trace."""
    checkout = quote("service=web http.route=/checkout")
    yield Shot("overview", "What got worse?", "/?since=1h")
    yield Shot("search", "Which traces?", f"/search?since=1h&q={checkout}&selection=status%3Derror")
    yield Shot("trace", "Why was this slow or wrong?", f"/trace/{trace_id}", ("e",))
    yield Shot("errors", "What fails?", "/errors?since=1h")
    yield Shot("compare", "Is B worse than A?", "/compare?since=1h&a=dpl_77a&b=dpl_8f2&project=prj_shop")
    yield Shot("services", "Which services are slow or fail?", "/services?since=1h")
    yield Shot("receiver", "Is anything missing?", "/receiver")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "gallery", show_default=True)
def main(out: Path) -> None:
    """Write a screenshot of each page in each theme."""
    out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="gallery-") as directory,
        running_receiver(Path(directory)) as receiver,
        chromium() as browser,
    ):
        receiver.send(shop(SHOP_TRACES))
        trace_id = receiver.wait_for("trace_id", "search", f"since=1h&limit=1&filter={quote(FAILED)}")
        for theme in THEMES:
            _write(receiver, browser, trace_id, theme, out)
    log(f"screenshots written to {out}")


def _write(receiver: Receiver, browser: Browser, trace_id: str, theme: str, out: Path) -> None:
    with new_page(browser, color_scheme=theme) as page:
        for shot in shots(trace_id):
            _take(page, receiver.pages + shot.path, shot.keys, out / f"{shot.name}-{theme}.webp")


def _take(page: Page, url: str, keys: tuple[str, ...], path: Path) -> None:
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
