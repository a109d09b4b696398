"""Tour of `make demo` in Chromium: does what each stop asks for, and takes screenshots for docs/tour.md."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser
from playwright.sync_api import Page as BrowserPage

from benchmarks.peers import MeasurementError
from benchmarks.ui.browse import new_page
from benchmarks.ui.screenshot import THEMES, themed_images, write_screenshot

HISTORY_S = 900
"""Past time with requests: enough for a verdict, and filled in less time than the default."""
STOP_S = 90
HEAD = """\
# Tour

Written by `make gallery`: the tour that `make demo` prints, in two minutes from the installation to the
explanation of a failed request. [Platform](platform.md#demo) says what the demo consists of."""
_STOP = re.compile(r"^\d\. ([\w ]+): (.+)\n   (http\S+)$", re.MULTILINE)


class Stop(NamedTuple):
    """A stop of the tour, as the demo prints it."""

    name: str
    text: str
    url: str

    def file(self, theme: str) -> str:
        """Return the name of the file with the screenshot."""
        return f"{self.name.lower().replace(' ', '-')}-{theme}.webp"


def _install(page: BrowserPage) -> None:
    # The second theme finds the integration installed.
    if page.get_by_text("is active").count() == 0:
        page.get_by_role("link", name="Install the integration").click()
    page.get_by_text("is active").first.wait_for()


def _explain(page: BrowserPage) -> None:
    page.get_by_role("button", name="Send and explain").click()
    page.get_by_text("The model has answered.").wait_for()


ACTIONS: Mapping[str, Callable[[BrowserPage], None]] = {"Install": _install, "Explanation": _explain}
"""What a visitor does at a stop."""


@contextmanager
def running_demo(directory: Path) -> Iterator[list[Stop]]:
    """Run the demo until the block ends. Yields its stops, once all can be visited."""
    command = [sys.executable, "-m", "trace_drain_testing.shop.shop_demo", "--data", str(directory)]
    command += ["--history-s", str(HISTORY_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603 - our own command
        try:
            yield _stops(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_S)


def _stops(process: subprocess.Popen[str]) -> list[Stop]:
    printed = ""
    for line in process.stdout or ():
        printed += line
        if "The platform" in line:
            return [Stop(*found) for found in _STOP.findall(printed)]
    raise MeasurementError(f"the demo has ended:\n{printed}")


def visit(browser: Browser, stops: Iterable[Stop], theme: str, directory: Path) -> None:
    """Take the tour in a theme, and write the screenshots."""
    with new_page(browser, color_scheme=theme) as page:
        for stop in stops:
            page.goto(stop.url)
            page.wait_for_selector("#theme:not([hidden])", state="attached")
            if stop.name in ACTIONS:
                ACTIONS[stop.name](page)
            write_screenshot(page, directory / stop.file(theme))


def take_tour(browser: Browser, data: Path, out: Path) -> None:
    """Write the page of the tour and its screenshots."""
    directory = out / "tour"
    directory.mkdir(exist_ok=True)
    with running_demo(data) as stops:
        for theme in THEMES:
            visit(browser, stops, theme, directory)
    (out / "tour.md").write_text(tour_page(stops))


def tour_page(stops: Iterable[Stop]) -> str:
    """Return the text of docs/tour.md."""
    lines = [HEAD]
    for number, stop in enumerate(stops, 1):
        lines.append(f"\n## {number}. {stop.name}\n\n{stop.text}.\n")
        lines += themed_images(stop.name, "tour", stop.file)
    return "\n".join(lines) + "\n"
