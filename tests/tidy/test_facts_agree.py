"""Facts that are stated twice are compared: versions, settings and metrics against the docs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import receiver
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


@pytest.mark.parametrize("key", keys(Settings))
def test_every_setting_is_documented(key: str) -> None:
    assert f"`{key}`" in (ROOT / "docs/settings.md").read_text()


@pytest.mark.parametrize("name", get_args(MetricName))
def test_every_metric_is_documented(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/metrics.md").read_text()
