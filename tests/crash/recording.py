"""Every call by which a process changed its files, as strace saw it; played again on a disk that forgets.

    record    a child runs once under strace
    play      its calls on a `MemoryDisk`, in order, one at a time; what it said comes in between

Never: files that were there before the child was.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

from tests.crash.promises import ROOT
from tests.support.memory_disk import MemoryDisk

CALLS = ("openat", "close", "write", "pwrite64", "ftruncate", "fsync", "fdatasync", "rename", "unlink")
CALLS_OF_DIRECTORIES = ("mkdir", "rmdir")
DATA = Path("/data")
"""Where they lie on the disk that forgets."""
WRITES = ("write", "pwrite64")
WHOLE = ["-s", str(1 << 24)]

_CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)(?:<.*>)?(?: (\w+).*)?$")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Call(NamedTuple):
    """One system call: what it is about, what it was given, the result."""

    name: str
    paths: tuple[Path, ...]
    content: bytes
    numbers: tuple[int, ...]
    flags: str
    result: int


def record(strace: str, module: str, data: Path, log: Path, *injected: str) -> list[Call]:
    """Run a module of ours to its end, and return what it did to `data`, and said."""
    return [call for call, _ in counted(strace, module, data, log, *injected)]


def counted(strace: str, module: str, data: Path, log: Path, *injected: str) -> list[tuple[Call, int]]:
    """The same, and of each call how many of its name there were by then: where strace can meet it again."""
    traced = ",".join((*CALLS, *CALLS_OF_DIRECTORIES))
    rules = (f"trace={traced}", *(f"inject={fault}" for fault in injected))
    run(strace, module, data, log, *rules).check_returncode()
    player, seen = Player(), Counter[str]()
    found = []
    for line in log.read_text().splitlines():
        call = understood(line, data)
        if call is not None:
            seen[call.name] += 1
            if player.play(call):
                found.append((call, seen[call.name]))
    return found


def run(strace: str, module: str, data: Path, log: Path, *rules: str) -> CompletedProcess[str]:
    """Run a module of ours under strace, with these rules."""
    said_to_strace = [word for rule in rules for word in ("-e", rule)]
    command = [strace, "-f", "-qq", "-xx", *WHOLE, *said_to_strace, "-o", str(log)]
    child = [sys.executable, "-B", "-m", module, str(data)]
    return subprocess.run([*command, *child], cwd=ROOT, capture_output=True, text=True, check=False)


def understood(line: str, data: Path) -> Call | None:
    """Read one line of strace, what lies in `data` as if that were `DATA`; none: a signal, an exit."""
    found = _CALL.match(line)
    if found is None:
        return None
    name, arguments, result, _ = found.groups()
    texts = tuple(bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(arguments))
    words = [word.strip() for word in _TEXT.sub("", arguments).split(",")]
    numbers = tuple(int(word) for word in words if re.fullmatch(r"-?\d+", word))
    content = texts[0] if name in WRITES else b""
    paths = () if name in WRITES else tuple(moved(Path(text.decode()), data) for text in texts)
    return Call(name, paths, content, numbers, arguments.rpartition('"')[2], int(result))


def moved(path: Path, data: Path) -> Path:
    """Say where a path lies once its data directory is `DATA`."""
    return DATA / path.relative_to(data) if path.is_relative_to(data) else path


class Player:
    """Plays calls on a disk, those that concern files under `DATA`."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.said = b""
        self._fds: dict[int, int | Path] = {}
        """Descriptor of the child → that of the disk, or a directory."""
        self.disk.make_directory(DATA)
        self.disk.sync_directory(DATA.parent)

    def play(self, call: Call) -> bool:
        """Do it again. Tells whether it is about these files, or said something."""
        if call.name == "write" and call.numbers[0] == 1:
            self.said += call.content
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
            raise AssertionError(f"{call} has no offset; expected pwrite64 on files of ours")
        return True

    def _sync(self, target: int, *, is_refused: bool) -> None:
        if is_refused:
            self.disk.fail("sync")
        with suppress(OSError):
            self.disk.sync(target)


def played(calls: Sequence[Call]) -> Player:
    """Play these calls."""
    player = Player()
    for call in calls:
        player.play(call)
    return player


def lay_out(disk: MemoryDisk, source: Path, target: Path) -> None:
    """Write what a disk holds to a real one."""
    target.mkdir()
    for name in disk.names(source):
        if disk.is_directory(source / name):
            lay_out(disk, source / name, target / name)
        else:
            (target / name).write_bytes(disk.read(source / name))
