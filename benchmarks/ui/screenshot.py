"""Screenshots of pages in both themes, and the lines of Markdown that show them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

THEMES = ("light", "dark")
WEBP_QUALITY = 80


def write_screenshot(page: Page, path: Path) -> None:
    """Write what the browser shows, once nothing is loaded any more."""
    page.wait_for_load_state("networkidle")
    # Half the size of a PNG; only the protocol of the browser writes WebP.
    taken = page.context.new_cdp_session(page).send(
        "Page.captureScreenshot", {"format": "webp", "quality": WEBP_QUALITY}
    )
    path.write_bytes(b64decode(taken["data"]))


def themed_images(title: str, directory: str, file: Callable[[str], str]) -> list[str]:
    """Return the lines that show a screenshot, of which the site picks that of its own theme."""
    return [f"![{title}, {theme}]({directory}/{file(theme)}#only-{theme})" for theme in THEMES]
