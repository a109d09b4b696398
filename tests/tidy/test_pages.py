"""Paths, links, targets and commands that the pages for people name must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from receiver.cli import main
from tests.tidy.test_tidy import ROOT, ids, tracked

PAGES = [page for page in tracked("*.md") if "tests" not in page.parts]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
PATH = re.compile(r"(?:[a-z_]+/)+[\w.*-]*")
WORDS_OF_COMMAND = re.compile(r"trace-drain((?: (?:[a-z]+(?:-[a-z]+)*|--[a-z-]+|[A-Z]+|'[^']*'))*)")
TOP_FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
BELOW = ("", "receiver/", "tests/")
"""Folders from which ARCHITECTURE.md names the others."""


def literals(page: Path) -> Iterator[str]:
    """Yield the code of a page: inline literals, and the lines of its blocks."""
    for number, part in enumerate(page.read_text().split("```")):
        yield from part.splitlines()[1:] if number % 2 else re.findall(r"`([^`\n]+)`", part)


@cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def is_in_repository(name: str) -> bool:
    return any(next(ROOT.glob(f"{folder}{name}".rstrip("/")), None) for folder in BELOW)


def unknown_part(words: list[str]) -> str:
    """Return the first command or option of a command line that does not exist; empty if all exist."""
    command: click.Command = main
    context = click.Context(main)
    for word in words:
        if isinstance(command, click.Group) and word[0].islower():
            subcommand = command.get_command(context, word)
            if subcommand is None:
                return word
            command = subcommand
        elif word.startswith("--"):
            options = {
                name for option in command.get_params(context) for name in option.opts + option.secondary_opts
            }
            if word not in options:
                return word
    return ""


def test_targets_of_links_exist() -> None:
    broken = [
        f"{ids(page)}: {target}#{anchor}"
        for page in PAGES
        for target, anchor in LINK.findall(page.read_text())
        if not (page.parent / target).exists()
        or (anchor and anchor not in anchors(page.parent / target if target else page))
    ]

    assert broken == []


def test_paths_of_the_repository_exist() -> None:
    missing = [
        f"{ids(page)}: {name}"
        for page in PAGES
        for literal in literals(page)
        for name in PATH.findall(literal.partition("::")[0])
        if literal.startswith(name) and name.partition("/")[0] in TOP_FOLDERS and not is_in_repository(name)
    ]

    assert missing == []


def test_folders_of_the_architecture_exist() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]

    assert named
    assert [name for name in named if not is_in_repository(name)] == []


def test_targets_of_make_exist() -> None:
    unknown = [
        f"{ids(page)}: {literal}"
        for page in PAGES
        for literal in literals(page)
        for target in re.findall(r"^make ([a-z-]+)", literal)
        if target not in TARGETS
    ]

    assert unknown == []


def test_commands_and_options_exist() -> None:
    unknown = [
        f"{ids(page)}: {literal} ({part})"
        for page in PAGES
        for literal in literals(page)
        for words in WORDS_OF_COMMAND.findall(literal)
        if (part := unknown_part(words.split()))
    ]

    assert unknown == []


def test_index_lists_the_decisions_in_order() -> None:
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"^\* \[(.+)\]\((\d{4}-.+\.md)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    notes = sorted(folder.glob("0*.md"))

    assert listed == [(note.read_text().partition("\n")[0].removeprefix("# "), note.name) for note in notes]
