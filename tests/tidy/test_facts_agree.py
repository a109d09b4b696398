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
    test_kit = tomllib.loads((ROOT / "testing/pyproject.toml").read_text())["project"]["version"]
    crate = tomllib.loads((ROOT / "transcode/Cargo.toml").read_text())["package"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    chart = re.findall(
        r'ersion: "?([\d.]+)"?$',
        (ROOT / "deploy/helm/trace-drain-receiver/Chart.yaml").read_text(),
        re.MULTILINE,
    )

    assert newest
    assert receiver.__version__ == package == test_kit == crate == newest[1]
    # Versions of the chart and of the receiver.
    assert chart == [package, package]


@pytest.mark.parametrize("page", PAGES)
def test_generated_page_is_up_to_date(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == PAGES[page](), "run `make docs`"


def test_standard_promoted_attributes_are_documented() -> None:
    section = (ROOT / "docs/query.md").read_text().partition("## Promoted attributes")[2]

    assert section.split("```")[1].strip().splitlines() == list(STANDARD)


def test_every_setting_has_a_description() -> None:
    cells = [line.split("|") for line in settings_page().splitlines() if line.startswith("| `")]
    described = {row[1].strip().strip("`") for row in cells if row[4].strip()}

    assert set(keys(Settings)) - described == set(), "expected a docstring below the setting"


def test_every_metric_is_used() -> None:
    declarations = ROOT / "receiver/metrics.py"
    sources = "".join(path.read_text() for path in (ROOT / "receiver").rglob("*.py") if path != declarations)

    assert [name for name in get_args(MetricName) if f'"{name}"' not in sources] == []


def test_only_the_core_reads_the_bytes_of_records() -> None:
    layout = re.compile(r"184D2A5|TDRJ|TDRF|^import struct$", re.MULTILINE)
    modules = [*(ROOT / "receiver/journal").rglob("*.py"), *(ROOT / "receiver/writer").rglob("*.py")]

    assert [str(path) for path in modules if layout.search(path.read_text())] == []
