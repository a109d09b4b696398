"""Lazy imports of modules whose dependencies take as long to load as a complete intake.

Invariant: before the first 200 the supervisor loads neither aiohttp nor prometheus_client nor cryptography.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from receiver.supervisor.admin import Admin


def load_admin_class() -> type[Admin]:
    """Import the admin port."""
    return cast("type[Admin]", import_module("receiver.supervisor.admin").Admin)


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Return the paths of a self-signed certificate and its key in this directory; create them if needed."""
    module = import_module("receiver.supervisor.self_signed")
    return cast("Callable[[Path], tuple[Path, Path]]", module.self_signed)(directory)
