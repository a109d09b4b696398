"""Imports by name escape the import contracts: only where a decision note says why."""

from __future__ import annotations

import re

from tests.tidy.test_tidy import PYTHON, ROOT, ids

BY_NAME = re.compile(r"\bimport_module\(|\bresolve_name\b|\b__import__\(|\bexec_module\(|\brunpy\.")


def test_a_decision_note_names_each_module_that_imports_by_name() -> None:
    notes = "".join(note.read_text() for note in (ROOT / "docs/decisions").glob("*.md"))
    importers = [
        ids(path) for path in PYTHON if ids(path).startswith("receiver/") and BY_NAME.search(path.read_text())
    ]

    assert importers
    assert [name for name in importers if f"`{name}`" not in notes] == []
