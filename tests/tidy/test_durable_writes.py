"""Only `durable/` changes files, so that fault injection has one interface to replace."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "receiver"
MAY_WRITE = "durable"

SEGMENT_FILE = "method of the journal's segment file"
UNNAMED = "unnamed temporary file, which need not survive"
EXEMPT = {
    ("console/api/spool.py", "os.pwrite"): UNNAMED,
    ("console/api/spool.py", "tempfile.TemporaryFile"): UNNAMED,
    ("cli/shell/api_client.py", "tempfile.SpooledTemporaryFile"): UNNAMED,
    ("engine/embedded.py", "os.fdopen"): "file in memory (memfd)",
    ("intake/connections/tls.py", "os.fdopen"): "file in memory (memfd)",
    ("move/mover.py", "tempfile.SpooledTemporaryFile"): UNNAMED,
    ("writer/dedupe.py", "file.replace"): SEGMENT_FILE,
    ("writer/steps.py", "unit.unlink"): SEGMENT_FILE,
}
"""Module and expression → why it is not a write of `durable`."""

FILES = {"DISK", "files", "self.files", "self._files"}
"""Names under which modules hold `durable.files.Files`."""
FUNCTIONS = {
    "os": {
        *("write", "writev", "pwrite", "pwritev", "truncate", "ftruncate", "posix_fallocate"),
        *("fsync", "fdatasync", "sync", "sendfile", "copy_file_range"),
        *("rename", "renames", "replace", "unlink", "remove", "rmdir", "removedirs", "mkdir", "makedirs"),
        *("link", "symlink", "mkfifo", "mknod", "chmod", "fchmod", "lchmod", "chown", "fchown", "utime"),
    },
    "shutil": {
        *("rmtree", "move", "copy", "copy2", "copyfile", "copyfileobj", "copytree", "copymode", "copystat"),
        *("chown", "make_archive", "unpack_archive"),
    },
    "tempfile": {
        *("TemporaryFile", "NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory"),
        *("mkstemp", "mkdtemp"),
    },
}
METHODS = {
    *("unlink", "rename", "rmdir", "mkdir", "write_text", "write_bytes", "touch"),
    *("symlink_to", "hardlink_to", "chmod", "lchmod", "syncfs"),
}
WRITE_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}


def changes_of_files(source: str) -> Iterator[str]:
    """Yield the expressions of a module that change files without `Files`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = FUNCTIONS.get(node.module or "", set())
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name in names)
        elif isinstance(node, ast.Attribute):
            owner, name = ast.unparse(node.value), node.attr
            if name in FUNCTIONS.get(owner, METHODS) and owner not in FILES:
                yield f"{owner}.{name}"
        elif isinstance(node, ast.Call) and (opens_for_writing(node) or is_replace_of_path(node)):
            yield ast.unparse(node.func)


def is_replace_of_path(call: ast.Call) -> bool:
    """Return whether this may be `Path.replace(target)`. `str.replace` takes two arguments."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "replace" or call.keywords:
        return False
    return len(call.args) == 1 and not isinstance(call.args[0], ast.Starred)


def opens_for_writing(call: ast.Call) -> bool:
    """Return whether this opens a file for writing, or with a mode that is not a constant."""
    opener = ast.unparse(call.func)
    if opener == "os.open":
        is_null_device = ast.unparse(call.args[0]) == "os.devnull"
        flags = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
        return bool(flags & WRITE_FLAGS) and not is_null_device
    if opener in {"open", "io.open", "os.fdopen"}:
        modes = call.args[1:2]
    elif opener.endswith(".open"):
        modes = [mode for mode in call.args[:1] if isinstance(mode, ast.Constant)]
    else:
        return False
    modes += [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    return any(not isinstance(mode, ast.Constant) or set(str(mode.value)) & set("wax+") for mode in modes)


def test_only_durable_changes_files_except_for_the_exemptions() -> None:
    modules = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]
    changes = {
        (str(module), expression)
        for module in modules
        if module.parts[0] != MAY_WRITE
        for expression in changes_of_files((PACKAGE / module).read_text())
    }

    assert changes - EXEMPT.keys() == set(), "use `receiver.durable.files`"
    assert EXEMPT.keys() - changes == set(), "the exemption is not needed"


@pytest.mark.parametrize(
    "source",
    [
        "os.rename(a, b)",
        "os.write(fd, content)",
        "stack.callback(shutil.rmtree, path)",
        "from shutil import rmtree",
        "path.unlink(missing_ok=True)",
        "draft.replace(path)",
        "path.write_bytes(content)",
        "path.open('r+b')",
        "open(path, mode='w')",
        "open(path, mode)",
        "os.fdopen(fd, 'wb')",
        "os.open(path, os.O_RDWR | os.O_CLOEXEC)",
        "ctypes.CDLL(None).syncfs(fd)",
    ],
)
def test_change_of_a_file_is_found(source: str) -> None:
    assert list(changes_of_files(source))


@pytest.mark.parametrize(
    "source",
    [
        "DISK.rename(a, b)",
        "self._files.unlink(path)",
        "text.replace('a', 'b')",
        "instant.replace(tzinfo=UTC)",
        "verdicts.replace(*pair)",
        "path.open('rb')",
        "open(path)",
        "listener.open(app, socket)",
        "os.open(path, os.O_RDONLY | os.O_DIRECTORY)",
        "os.open(os.devnull, os.O_RDWR)",
        "shutil.disk_usage(path)",
        "path.read_bytes()",
    ],
)
def test_other_code_is_not_mistaken_for_a_change_of_a_file(source: str) -> None:
    assert list(changes_of_files(source)) == []
