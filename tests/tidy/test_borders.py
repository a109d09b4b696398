"""Sizes of the four areas and of their folders. A ceiling only shrinks; raising one needs a decision note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.tidy.test_tidy import ROOT, tracked

MODULES_MAX = 22
"""Maximum number of modules in a folder. Folders of commands have one for each command."""
COMMANDS = "receiver/cli/"
LINES_MAX = {
    "receiver": 23_920,
    "receiver/console": 24_600,
    "receiver/platform": 6_850,
    "receiver/cli": 5_800,
    "testing": 6_900,
    "tests": 75_300,
}
"""Area → maximum number of lines of its code."""


def area_of(path: Path) -> str:
    """Return the most specific area of a file."""
    name = path.relative_to(ROOT).as_posix()
    return max((area for area in LINES_MAX if name.startswith(f"{area}/")), key=len)


def lines_of(paths: Iterable[Path]) -> Counter[str]:
    lines: Counter[str] = Counter()
    for path in paths:
        lines[area_of(path)] += path.read_text().count("\n")
    return lines


def test_no_area_grows_beyond_its_ceiling() -> None:
    code = tracked(
        *(f"{top}/*.{kind}" for top in ("receiver", "testing") for kind in ("py", "js", "css", "html"))
    )
    lines = lines_of([*code, *tracked("tests/*.py")])

    assert {area: count for area, count in lines.items() if count > LINES_MAX[area]} == {}


def test_no_folder_has_too_many_modules() -> None:
    modules = tracked("receiver/*.py", "testing/*.py")
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in modules)

    crowded = {folder: count for folder, count in folders.items() if count > MODULES_MAX}
    assert {folder: count for folder, count in crowded.items() if not f"{folder}/".startswith(COMMANDS)} == {}
