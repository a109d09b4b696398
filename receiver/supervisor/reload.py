"""Which settings a running receiver takes over, and which wait for the next start.

Keeps: what is in force together never exposes what would have been refused at the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from receiver.config.checks import exposure_of
from receiver.errors import OperatorError
from receiver.settings import Settings, Tls

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
"""What sockets, processes, the store's tables and the writer's logs were made from."""


@dataclass(frozen=True)
class Reloaded:
    """New settings as far as they can be used now."""

    settings: Settings
    changed: tuple[str, ...]
    """Top-level keys that are different from now on."""
    waiting: tuple[str, ...]
    """Top-level keys that are different from the next start on."""


def reloaded(running: Settings, new: Settings) -> Reloaded:
    """What of `new` a receiver that runs with `running` can use. Raises `OperatorError` if it may not."""
    keys = [name for name in Settings.__struct_fields__ if getattr(running, name) != getattr(new, name)]
    waiting = AT_START_ONLY if _is_alike(running.tls, new.tls) else (*AT_START_ONLY, "tls")
    in_force = msgspec.structs.replace(new, **{name: getattr(running, name) for name in waiting})
    problems = exposure_of(in_force)
    if problems:
        what = "with the settings that wait for the next start the new ones cannot be used:"
        raise OperatorError("\n".join([what, *problems]))
    return Reloaded(
        settings=in_force,
        changed=tuple(key for key in keys if key not in waiting),
        waiting=tuple(key for key in keys if key in waiting),
    )


def _is_alike(one: Tls, other: Tls) -> bool:
    """Whether both speak TLS or neither, and both ask for client certificates or neither."""
    return bool(one.cert_file) == bool(other.cert_file) and bool(one.client_ca_file) == bool(
        other.client_ca_file
    )


def in_one_line(reason: OperatorError) -> str:
    """What is told in several lines, as a log line holds it: the heading, then every problem."""
    heading, *problems = (line.strip() for line in str(reason).splitlines())
    return f"{heading} {'; '.join(problems)}".rstrip()
