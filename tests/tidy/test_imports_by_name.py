"""Imports by name escape the import contracts: only where a decision note says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.test_tidy import PYTHON, ROOT, ids

BY_NAME = re.compile(r"\bimport_module\(|\b__import__\(|\bexec_module\(|\brunpy\.")


@pytest.mark.parametrize("path", [path for path in PYTHON if ids(path).startswith("receiver/")], ids=ids)
def test_a_decision_note_names_a_module_that_imports_by_name(path: Path) -> None:
    if not BY_NAME.search(path.read_text()):
        return

    notes = (ROOT / "docs/decisions").glob("*.md")
    assert [note.name for note in notes if f"`{ids(path)}`" in note.read_text()]
