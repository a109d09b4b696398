"""Facts that are stated twice are compared: versions, settings and metrics against the docs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import receiver
from docs.generate import PAGES, settings_page
from docs.reliability import Case, cases
from receiver.metrics import MetricName
from receiver.settings import Settings

ROOT = Path(__file__).parents[2]


def keys(table: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Every setting as it is written in the file, `drain.` and `sampling.rule.` for lists of tables."""
    found = []
    for field in msgspec.structs.fields(table):
        kinds = [field.type, *get_args(field.type)]
        nested = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)), None
        )
        name = f"{prefix}{field.encode_name}"
        found += keys(nested, f"{name}.") if nested else [name]
    return found


def test_the_versions_agree() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    crate = tomllib.loads((ROOT / "transcode/Cargo.toml").read_text())["package"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert newest
    assert receiver.__version__ == package == crate == newest[1]


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_the_code_says_now(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == PAGES[page](), "run `make docs`"


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.id)
def test_every_fault_case_is_told_of(case: Case) -> None:
    page = (ROOT / "docs/reliability.md").read_text()

    assert f"| {case.fault} | [{case.name}](../{case.file}) |" in page, "run `make reliability`"


@pytest.mark.parametrize("key", keys(Settings))
def test_every_setting_says_what_it_means(key: str) -> None:
    row = next(line for line in settings_page().splitlines() if line.startswith(f"| `{key}` |"))

    assert row.split("|")[4].strip(), "write a docstring below it"


@pytest.mark.parametrize("name", get_args(MetricName))
def test_every_metric_is_counted_somewhere(name: str) -> None:
    declarations = ROOT / "receiver/metrics.py"
    modules = [path.read_text() for path in (ROOT / "receiver").rglob("*.py") if path != declarations]

    assert any(f'"{name}"' in module for module in modules)
