"""Addresses and process ids of the running receiver: the file `receiver.json` in its data directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from receiver.durable.files import DISK
from receiver.errors import CommandFailed
from receiver.settings import Settings

STATE_NAME: Final = "receiver.json"


class Pids(msgspec.Struct, frozen=True, kw_only=True):
    """Process ids, updated when a process is replaced."""

    supervisor: int
    intake: tuple[int, ...]
    store: int


class ReceiverState(msgspec.Struct, frozen=True, kw_only=True):
    """Content of `receiver.json`."""

    listen: str
    """HOST:PORT of the drain endpoint, as bound."""
    admin: str
    api: str = ""
    """HOST:PORT of the API; empty if it is off."""
    clickhouse: str = ""
    """HOST:PORT of the ClickHouse endpoint; empty if it is off."""
    urls: dict[str, str]
    """`listen`, `admin`, `api` and `clickhouse` as URLs to connect to from this machine."""
    pids: Pids
    version: str
    started_at: str

    @property
    def api_url(self) -> str:
        """Return the URL of the API. Raises `CommandFailed` if it is off."""
        if "api" not in self.urls:
            raise CommandFailed("the API of the receiver is off; expected api.enabled = true and a restart")
        return self.urls["api"]


def running_receiver(settings: Settings) -> ReceiverState | None:
    """Return the receiver that runs on this data directory. Ignores the state file of a killed receiver."""
    directory = Path(settings.data_dir)
    if not (directory / STATE_NAME).exists():
        return None
    state = read_state(directory)
    return state if Path(f"/proc/{state.pids.supervisor}").exists() else None


def read_state(directory: Path) -> ReceiverState:
    """Return the state of the receiver that uses this directory. Raises `CommandFailed` if there is none."""
    try:
        return msgspec.json.decode(DISK.read(directory / STATE_NAME), type=ReceiverState)
    except FileNotFoundError as error:
        raise CommandFailed(
            f"no receiver runs on '{directory}'; expected `trace-drain serve --data {directory}`"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise CommandFailed(
            f"'{directory / STATE_NAME}' cannot be read; expected a receiver's state"
        ) from error
