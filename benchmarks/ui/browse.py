"""Measurements in Chromium: the time until a waterfall is drawn, and the frames while it scrolls."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from benchmarks.peers import MeasurementError
from benchmarks.ui.results import Drawn, Scrolled

WAIT_MS = 300_000
FRAMES = 120
FRAME_PX = 280
"""Ten rows a frame, so that every frame fills rows."""
_DRAWN = """() => {
  const page = performance.getEntriesByType("navigation")[0];
  const spans = performance.getEntriesByType("resource").find((entry) => entry.name.endsWith("/outline"));
  const drawn = performance.getEntriesByName("waterfall-drawn")[0].startTime;
  return {
    page_ms: drawn - page.responseStart,
    spans_ms: drawn - spans.responseStart,
    kib: spans.encodedBodySize / 1024,
  };
}"""
_SCROLL = """async ([frames, pixels]) => {
  const grid = document.querySelector("[role=treegrid]");
  const step = Math.min(pixels, (grid.scrollHeight - grid.clientHeight) / frames);
  const next = () => new Promise(requestAnimationFrame);
  let before = await next();
  const times = [];
  for (let frame = 0; frame < frames; frame++) {
    grid.scrollTop += step;
    const now = await next();
    times.push(now - before);
    before = now;
  }
  return times;
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium."""
    path = shutil.which("chromium")
    if path is None:
        raise MeasurementError("chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def new_page(browser: Browser, **options: Any) -> Iterator[Page]:  # noqa: ANN401 - options of a browser context
    """Open a page without anything that the browser has kept of earlier pages."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
    context.set_default_timeout(WAIT_MS)
    yield context.new_page()
    context.close()


def draw(browser: Browser, url: str) -> tuple[Drawn, Scrolled]:
    """Open the page of a trace, and scroll its waterfall."""
    with new_page(browser) as page:
        session = page.context.new_cdp_session(page)
        # CPU time of the page's thread, which depends less on other work on the machine than the clock does.
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(url)
        page.wait_for_selector("[role=treegrid] [role=row]")
        drawn = Drawn(**page.evaluate(_DRAWN), cpu_ms=_cpu_ms(session))
        page.wait_for_timeout(500)
        before_ms = _cpu_ms(session)
        frames = page.evaluate(_SCROLL, [FRAMES, FRAME_PX])
        return drawn, Scrolled(frames, (_cpu_ms(session) - before_ms) / FRAMES)


def _cpu_ms(session: CDPSession) -> float:
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"]) * 1_000
