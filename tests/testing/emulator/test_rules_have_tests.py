"""Every stated rule of docs/platform.md has a test that is named after it."""

from __future__ import annotations

import re

from tests.tidy.test_tidy import ROOT, tracked

RULE = re.compile(r"^\| (P\d+) \| ([SU]) \|", re.MULTILINE)
TEST = re.compile(r"^ *(?:async )?def test_p0*(\d+)_", re.MULTILINE)
RULES_MIN = 35
"""Fewer rules than the platform has: a pattern that matches nothing must not pass."""


def rules() -> list[tuple[str, str]]:
    _, _, section = (ROOT / "docs/platform.md").read_text().partition("\n## Rules\n")
    return RULE.findall(section.partition("\n## ")[0])


def test_every_stated_rule_has_a_test() -> None:
    tested = {
        f"P{number}" for path in tracked("tests/**/test_*.py") for number in TEST.findall(path.read_text())
    }

    assert [name for name, kind in rules() if kind == "S" and name not in tested] == []


def test_every_rule_is_listed_once() -> None:
    names = [name for name, _ in rules()]

    assert len(names) >= RULES_MIN
    assert len(names) == len(set(names))
