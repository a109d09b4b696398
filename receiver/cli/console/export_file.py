"""File of an export: FILE.partial with its state beside it, renamed to FILE when it is complete."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from receiver.durable.files import DISK, open_or_create, unlink_if_exists, write_all, write_durably
from receiver.errors import CommandFailed, OperatorError


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an export is complete. The times are instants."""

    asked: dict[str, str]
    """Parameters of the command as the operator typed them."""
    since: str
    """Every span that started before is in the file."""
    until: str
    spans: int = 0
    size_bytes: int = 0


class PartialFile:
    """Incomplete file that only this process writes."""

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise OperatorError(f"no directory '{path.parent}'; expected -o FILE in a directory that exists")
        if DISK.size_bytes(path) is not None:
            raise OperatorError(f"'{path}' exists; expected the name of a new file")
        self._path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._state = path.with_name(f"{path.name}.partial.state")
        self._fd = open_or_create(self._partial)
        self.size_bytes = 0
        # Two exports with the same file would mix their blocks. The kernel frees the lock of a killed
        # process.
        if not DISK.lock(self._fd):
            DISK.close(self._fd)
            raise CommandFailed(f"another process writes '{self._partial}'")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if DISK.size_bytes(self._state) is None:
            # Before the close, which frees the lock: afterwards the file may be that of another process.
            unlink_if_exists(self._partial)  # an export without a state cannot be continued
        DISK.close(self._fd)

    def begin(self) -> None:
        """Discard the content of an earlier export."""
        unlink_if_exists(self._state)
        # After the state is deleted: a crash in between must not leave a state about bytes that are gone.
        DISK.truncate(self._fd, 0)

    def resume(self, asked: dict[str, str]) -> State | None:
        """Return the state of an interrupted export of the same parameters; `None` if there is none."""
        if DISK.size_bytes(self._state) is None:
            return None
        state = _decoded(DISK.read(self._state))
        present_bytes = DISK.size_bytes(self._partial) or 0
        if state is None or state.asked != asked or present_bytes < state.size_bytes:
            raise OperatorError(
                f"'{self._partial}' belongs to another export; expected the same filter, --since, --until "
                f"and --format; to start again, delete it and '{self._state}'"
            )
        # Bytes after the last saved state may be incomplete; their spans are exported again.
        DISK.truncate(self._fd, state.size_bytes)
        self.size_bytes = state.size_bytes
        return state

    def write(self, content: bytes) -> None:
        """Append to the file."""
        write_all(DISK, self._fd, content, self.size_bytes)
        self.size_bytes += len(content)

    def save(self, state: State) -> None:
        """Sync what was written, then the state."""
        # In this order, the state never claims bytes that a power failure takes away.
        DISK.sync_data(self._fd)
        write_durably(self._state, msgspec.json.encode(state))

    def finish(self) -> None:
        """Sync the file and give it its name."""
        # Synced before the rename, so that FILE never has its name without its content.
        DISK.sync(self._fd)
        # The state is deleted after the rename: until then the export can continue.
        DISK.rename(self._partial, self._path)
        unlink_if_exists(self._state)
        DISK.sync_directory(self._path.parent)


def _decoded(content: bytes) -> State | None:
    try:
        return msgspec.json.decode(content, type=State)
    except msgspec.DecodeError:
        return None
