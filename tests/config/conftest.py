"""Fixtures of the configuration tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.config_files import ConfigDirectory


@pytest.fixture
def config_dir(tmp_path: Path) -> ConfigDirectory:
    return ConfigDirectory(tmp_path)
