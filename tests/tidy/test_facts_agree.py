"""Tests that facts stated in several files agree: versions, settings, metrics, generated pages."""

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
from receiver.config.promoted import STANDARD
from receiver.metrics import MetricName
from receiver.settings import Settings

ROOT = Path(__file__).parents[2]


def keys(table: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Return the key of every setting; tables in lists have the prefix `drain.` or `sampling.rule.`."""
    names = []
    for field in msgspec.structs.fields(table):
        kinds = [field.type, *get_args(field.type)]
        nested = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)), None
        )
        name = f"{prefix}{field.encode_name}"
        names += keys(nested, f"{name}.") if nested else [name]
    return names


def test_versions_agree() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    crate = tomllib.loads((ROOT / "transcode/Cargo.toml").read_text())["package"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert newest
    assert receiver.__version__ == package == crate == newest[1]


@pytest.mark.parametrize("page", PAGES)
def test_generated_page_is_up_to_date(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == PAGES[page](), "run `make docs`"


def test_standard_promoted_attributes_are_documented() -> None:
    section = (ROOT / "docs/query.md").read_text().partition("## Promoted attributes")[2]

    assert section.split("```")[1].strip().splitlines() == list(STANDARD)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.id)
def test_every_fault_case_is_documented(case: Case) -> None:
    page = (ROOT / "docs/reliability.md").read_text()

    assert f"| {case.fault} | [{case.name}](../{case.file}) |" in page, "run `make reliability`"


@pytest.mark.parametrize("key", keys(Settings))
def test_every_setting_has_a_description(key: str) -> None:
    row = next(line for line in settings_page().splitlines() if line.startswith(f"| `{key}` |"))

    assert row.split("|")[4].strip(), "expected a docstring below the setting"


@pytest.mark.parametrize("name", get_args(MetricName))
def test_every_metric_is_used(name: str) -> None:
    declarations = ROOT / "receiver/metrics.py"
    modules = [path.read_text() for path in (ROOT / "receiver").rglob("*.py") if path != declarations]

    assert any(f'"{name}"' in module for module in modules)


def test_only_the_core_reads_the_bytes_of_records() -> None:
    layout = re.compile(r"184D2A5|TDRJ|TDRF|^import struct$", re.MULTILINE)
    modules = [*(ROOT / "receiver/journal").rglob("*.py"), *(ROOT / "receiver/writer").rglob("*.py")]

    assert [str(path) for path in modules if layout.search(path.read_text())] == []
