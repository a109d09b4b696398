"""Recorder of file operations: records system calls with strace and replays them on a simulated disk.

    record    run a child once under strace
    play      replay its calls on a `MemoryDisk` in order, one at a time, with its output in between

Never: files that existed before the child started.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.memory_disk import MemoryDisk
from tests.support.strace import run_child

CALLS = ("openat", "close", "write", "pwrite64", "ftruncate", "fsync", "fdatasync", "rename", "unlink")
CALLS_OF_DIRECTORIES = ("mkdir", "rmdir")
DATA = Path("/data")
"""Path of the child's data directory on the simulated disk."""
WRITES = ("write", "pwrite64")
WHOLE_TEXTS = ("-xx", "-s", str(1 << 24))

_CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)(?:<.*>)?(?: (\w+).*)?$")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Call(NamedTuple):
    """One system call: its paths, content, numeric arguments and result."""

    name: str
    paths: tuple[Path, ...]
    content: bytes
    numbers: tuple[int, ...]
    flags: str
    result: int


def record(module: str, data: Path, log: Path, *injected: str) -> list[tuple[Call, int]]:
    """Run a module of the tests to its end. Return its changes to `data`, and its output.

    Each call is returned with how often it was called so far, so that strace can select it again.
    """
    traced = ",".join((*CALLS, *CALLS_OF_DIRECTORIES))
    rules = (f"trace={traced}", *(f"inject={fault}" for fault in injected))
    run_child(module, str(data), log=log, rules=rules, options=WHOLE_TEXTS).check_returncode()
    player, seen = Player(), Counter[str]()
    recorded = []
    for line in log.read_text().splitlines():
        call = parse_line(line, data)
        if call is not None:
            seen[call.name] += 1
            if player.play(call):
                recorded.append((call, seen[call.name]))
    return recorded


def parse_line(line: str, data: Path) -> Call | None:
    """Parse a line of strace, with paths in `data` moved to `DATA`; None for signals and exits."""
    match = _CALL.match(line)
    if match is None:
        return None
    name, arguments, result, _ = match.groups()
    texts = tuple(bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(arguments))
    arguments_left = [word.strip() for word in _TEXT.sub("", arguments).split(",")]
    numbers = tuple(int(word) for word in arguments_left if re.fullmatch(r"-?\d+", word))
    content = texts[0] if name in WRITES else b""
    paths = () if name in WRITES else tuple(relocate(Path(text.decode()), data) for text in texts)
    return Call(name, paths, content, numbers, arguments.rpartition('"')[2], int(result))


def relocate(path: Path, data: Path) -> Path:
    """Return a path with its data directory replaced by `DATA`."""
    return DATA / path.relative_to(data) if path.is_relative_to(data) else path


class Player:
    """Replays the calls that concern files under `DATA` on a disk."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.output = b""
        self._fds: dict[int, int | Path] = {}
        """Maps the child's descriptor to the disk's descriptor, or to a directory."""
        self.disk.make_directory(DATA)
        self.disk.sync_directory(DATA.parent)

    def play(self, call: Call) -> bool:
        """Replay a call. Returns whether it concerns files under `DATA` or printed something."""
        if call.name == "write" and call.numbers[0] == 1:
            self.output += call.content
            return True
        if call.paths:
            return call.paths[0].is_relative_to(DATA) and self._play_on_path(call)
        return call.numbers[0] in self._fds and self._play_on_descriptor(call)

    def _play_on_path(self, call: Call) -> bool:
        if call.result < 0:
            return False
        disk, path = self.disk, call.paths[0]
        match call.name:
            case "openat":
                self._open(call)
            case "rename":
                disk.rename(path, call.paths[1])
            case "unlink":
                disk.unlink(path)
            case "mkdir":
                disk.make_directory(path)
            case "rmdir":
                disk.remove_directory(path)
        return True

    def _open(self, call: Call) -> None:
        path = call.paths[0]
        if "O_DIRECTORY" in call.flags:
            self._fds[call.result] = path
        elif "O_CREAT" in call.flags:
            self._fds[call.result] = self.disk.create(path)
        elif "O_RDWR" in call.flags:
            self._fds[call.result] = self.disk.open(path)

    def _play_on_descriptor(self, call: Call) -> bool:
        target = self._fds[call.numbers[0]]
        if call.name == "close":
            self._fds.pop(call.numbers[0])
        elif isinstance(target, Path):
            self.disk.sync_directory(target)
        elif call.name in {"fsync", "fdatasync"}:
            self._sync(target, is_refused=call.result < 0)
        elif call.result >= 0 and call.name == "pwrite64":
            self.disk.write(target, memoryview(call.content[: call.result]), call.numbers[2])
        elif call.result >= 0 and call.name == "ftruncate":
            self.disk.truncate(target, call.numbers[1])
        elif call.name == "write":
            raise AssertionError(f"{call} has no offset; expected pwrite64 on journal files")
        return True

    def _sync(self, target: int, *, is_refused: bool) -> None:
        if is_refused:
            self.disk.fail("sync")
        with suppress(OSError):
            self.disk.sync(target)


def play_all(calls: Sequence[Call]) -> Player:
    """Replay these calls on a new disk."""
    player = Player()
    for call in calls:
        player.play(call)
    return player


def lay_out(disk: MemoryDisk, source: Path, target: Path) -> None:
    """Write the contents of a simulated disk to a real directory."""
    target.mkdir()
    for name in disk.names(source):
        if disk.is_directory(source / name):
            lay_out(disk, source / name, target / name)
        else:
            (target / name).write_bytes(disk.read(source / name))
