"""Rooms that are loaded when they are needed, because what they stand on takes as long to load as an intake.

Keeps: on the way to the first 200 the supervisor loads no aiohttp, no prometheus_client, no cryptography.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from receiver.supervisor.admin import Admin


def admin_room() -> type[Admin]:
    """Load what serves the admin port."""
    return cast("type[Admin]", import_module("receiver.supervisor.admin").Admin)


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Load what makes a certificate, and have one with its key in this directory."""
    room = import_module("receiver.supervisor.self_signed")
    return cast("Callable[[Path], tuple[Path, Path]]", room.self_signed)(directory)
