"""Reload: selects the changed settings that a running receiver applies. The rest apply at the next start.

Invariant: the settings in force after a reload pass the same exposure checks as at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from receiver.config.checks import exposure_of
from receiver.errors import OperatorError
from receiver.settings import Platform, Settings, Tls

AT_START_ONLY = (
    "data_dir",
    "listen",
    "admin_listen",
    "api_listen",
    "api_hosts",
    "intakes",
    "log_format",
    "store",
    "journal",
    "redelivery",
    "ledger",
)
"""Settings that determine sockets, processes, the store's tables and the writer's logs."""
_API_AT_START_ONLY = ("enabled", "clickhouse_listen", "session_key")


@dataclass(frozen=True)
class ReloadResult:
    """Settings in force after a reload, and what changed."""

    settings: Settings
    changed: tuple[str, ...]
    """Top-level keys whose new values apply now."""
    waiting: tuple[str, ...]
    """Top-level keys whose new values apply after the next start."""

    def origins(self, running: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
        """Return the origins of the settings in force: those of the running values where a new one waits."""
        applied = {key: origin for key, origin in new.items() if _top(key) not in self.waiting}
        return applied | {key: origin for key, origin in running.items() if _top(key) in self.waiting}


def applicable_settings(running: Settings, new: Settings) -> ReloadResult:
    """Return the part of `new` that a running receiver can apply. Raises `OperatorError` if unsafe."""
    keys = [name for name in Settings.__struct_fields__ if getattr(running, name) != getattr(new, name)]
    waiting = AT_START_ONLY if _have_same_mode(running.tls, new.tls) else (*AT_START_ONLY, "tls")
    # Checked as a mixture: new settings without credentials are unsafe with the old, public address.
    in_force = msgspec.structs.replace(new, **{name: getattr(running, name) for name in waiting})
    # The settings of their tables that determine a socket, a process or a key that was read at the start.
    fixed = {name: getattr(running.api, name) for name in _API_AT_START_ONLY}
    api = msgspec.structs.replace(in_force.api, **fixed)
    in_force = msgspec.structs.replace(in_force, api=api)
    if (running.platform == Platform()) != (new.platform == Platform()):
        waiting = (*waiting, "platform")
        in_force = msgspec.structs.replace(in_force, platform=running.platform)
    moved = tuple(f"api.{name}" for name, value in fixed.items() if value != getattr(new.api, name))
    problems = exposure_of(in_force)
    if problems:
        heading = "the new settings conflict with settings that change only at the next start:"
        raise OperatorError("\n".join([heading, *problems]))
    return ReloadResult(
        settings=in_force,
        changed=tuple(key for key in keys if key not in waiting and (key != "api" or api != running.api)),
        waiting=(*(key for key in keys if key in waiting), *moved),
    )


def _top(key: str) -> str:
    """Return the top-level key of `store.url` or `drain[0].name`."""
    return key.partition(".")[0].partition("[")[0]


def _have_same_mode(running: Tls, new: Tls) -> bool:
    """Return whether both use TLS or neither, and both require client certificates or neither."""
    return bool(running.cert_file) == bool(new.cert_file) and bool(running.client_ca_file) == bool(
        new.client_ca_file
    )


def one_line(reason: OperatorError) -> str:
    """Return a message of several lines as one line: the heading, then every problem."""
    heading, *problems = (line.strip() for line in str(reason).splitlines())
    return f"{heading} {'; '.join(problems)}".rstrip()
