"""Which settings a running receiver takes over, and which wait for the next start."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from receiver.settings import Settings

AT_START_ONLY = (
    "data_dir",
    "listen",
    "admin_listen",
    "api_listen",
    "intakes",
    "log_format",
    "store",
    "journal",
)
"""What sockets, processes and the store's tables were made from."""


@dataclass(frozen=True)
class Reloaded:
    """New settings as far as they can be used now."""

    settings: Settings
    changed: tuple[str, ...]
    """Top-level keys that are different from now on."""
    waiting: tuple[str, ...]
    """Top-level keys that are different from the next start on."""


def reloaded(running: Settings, new: Settings) -> Reloaded:
    """What of `new` a receiver that runs with `running` can use."""
    keys = [name for name in Settings.__struct_fields__ if getattr(running, name) != getattr(new, name)]
    kept = {name: getattr(running, name) for name in AT_START_ONLY}
    return Reloaded(
        settings=msgspec.structs.replace(new, **kept),
        changed=tuple(key for key in keys if key not in AT_START_ONLY),
        waiting=tuple(key for key in keys if key in AT_START_ONLY),
    )
