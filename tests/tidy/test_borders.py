"""Sizes of the four areas and of their folders. A ceiling only shrinks; raising one needs a decision note."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.tidy.test_tidy import ROOT, tracked

MODULES_MAX = 22
"""Maximum number of modules in a folder. Folders of commands have one for each command."""
COMMANDS = "receiver/cli/"
LINES_MAX = {
    "receiver": 28_460,
    "receiver/console": 30_585,
    "receiver/platform": 6_486,
    "tests": 82_895,
    "receiver/cli": 6_214,
    "testing": 6_493,
}
"""Area → maximum number of lines of its code."""
CLASSES_OF_A_NAME_MAX = 2


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


STORE_HOLDERS = {"api/reader.py", "api/rollup.py", "api/routes.py"}
"""The reader, the routes of rollups, which read no spans, and the class that builds the reader."""


def test_routes_and_tools_reach_the_store_through_the_reader_only() -> None:
    console = ROOT / "receiver/console"
    holders = {
        path.relative_to(console).as_posix()
        for path in tracked(*(f"receiver/console/{part}/*.py" for part in ("api", "tools", "ui")))
        if re.search(r"\b(self|self\._?\w+|api)\.store\b", path.read_text())
    }

    assert holders == STORE_HOLDERS


def test_public_class_names_are_rarely_repeated() -> None:
    sources = [path.read_text() for path in tracked("receiver/*.py", "testing/*.py")]
    names = Counter(name for source in sources for name in re.findall(r"(?m)^class ([A-Z]\w*)", source))

    assert {name: count for name, count in names.items() if count > CLASSES_OF_A_NAME_MAX} == {}
