"""Test helper: a directory with a configuration file and its secrets, loaded as the program loads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from receiver.config.load import Loaded, Sources
from receiver.errors import OperatorError


class ConfigDirectory:
    """Directory of a configuration file: writes files and loads the settings."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def file(self, name: str, text: str, mode: int = 0o600) -> str:
        path = self.directory / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def load(
        self,
        toml: str = "",
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, tuple[str, object]] | None = None,
    ) -> Loaded:
        return Sources(self.file("trace-drain.toml", toml), environ or {}, flags or {}).load()

    def problem(self, toml: str, **environ: str) -> str:
        with pytest.raises(OperatorError) as caught:
            self.load(toml, environ)
        return str(caught.value)
