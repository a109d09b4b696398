"""The tour of `make demo` in a browser, as docs/tour.md shows it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarks.ui.browse import chromium
from benchmarks.ui.tour import running_demo, tour_page, visit

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is missing")
def test_every_stop_of_the_tour_can_be_visited_and_stands_in_the_docs(tmp_path: Path) -> None:
    # Each visit does what the stop asks for, and waits for the result: installed, explained.
    with running_demo(tmp_path / "demo") as stops, chromium() as browser:
        visit(browser, stops, "light", tmp_path)

    assert [stop.name for stop in stops] == re.findall(
        r"^## \d\. (.+)$", (DOCS / "tour.md").read_text(), re.MULTILINE
    )
    assert all((tmp_path / stop.file("light")).stat().st_size for stop in stops)
    verdict = next(stop.text for stop in stops if stop.name == "Compare")
    assert "dpl_shop_b is worse" in verdict
    assert f"## 3. Compare\n\n{verdict}" in tour_page(stops)
