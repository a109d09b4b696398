"""Private names of aiohttp: they exist in the installed version, and one module alone uses them."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
import types
from pathlib import Path

from aiohttp import web_protocol
from aiohttp.base_protocol import BaseProtocol
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

from receiver.http import aiohttp_internals
from tests.support.cases import each_case
from tests.tidy.test_tidy import ROOT, tracked

ADAPTER = ROOT / "receiver/http/aiohttp_internals.py"
SLOTS = {
    "_force_close",
    "_keepalive_handle",
    "_loop",
    "_max_msg_queue_size",
    "_messages",
    "_msg_queue_resume_size",
    "_parser",
    "_paused",
    "_request_count",
    "_upgraded",
    "_waiter",
}
METHODS = {"_drain_helper", "_pause_transport_reading", "_process_keepalive", "_resume_transport_reading"}
TYPES = {"_ErrInfo", "_MsgType"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names() -> set[str]:
    """Private attributes of aiohttp's connection and server; the server's are set in its `__init__`."""
    server_source = ast.walk(ast.parse(inspect.getsource(Server)))
    server_names = {node.attr for node in server_source if isinstance(node, ast.Attribute)}
    return {name for name in {*dir(RequestHandler), *server_names} if is_private(name)}


def names_in(path: Path) -> set[str]:
    """Private attributes of `self` and `super()` in a module, and private names imported from aiohttp."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiohttp"):
            names |= {alias.name for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            names.add(node.attr)
    return names


def subclass_modules() -> list[Path]:
    """Modules with a class that inherits from aiohttp's connection or server."""
    paths = [path for path in tracked("receiver/http/*.py", "receiver/intake/*.py") if path != ADAPTER]
    found = []
    for path in paths:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        classes = [cls for _, cls in inspect.getmembers(module, inspect.isclass)]
        own = [cls for cls in classes if cls.__module__ == module.__name__]
        if any(issubclass(cls, RequestHandler | Server) for cls in own):
            found.append(path)
    return found


@each_case("name", sorted(SLOTS))
def test_aiohttp_connection_has_slot(name: str) -> None:
    assert isinstance(getattr(RequestHandler, name), types.MemberDescriptorType)


@each_case("name", sorted(METHODS))
def test_aiohttp_connection_has_method(name: str) -> None:
    method = getattr(RequestHandler, name)

    assert isinstance(method, types.FunctionType)
    assert list(inspect.signature(method).parameters) == ["self"]
    assert inspect.iscoroutinefunction(method) == (name == "_drain_helper")
    assert hasattr(BaseProtocol, name) or name == "_process_keepalive"


def test_aiohttp_has_types() -> None:
    assert [name for name in TYPES if not hasattr(web_protocol, name)] == []


def test_all_private_names_in_the_adapter_are_checked() -> None:
    source = ast.walk(ast.parse(ADAPTER.read_text()))
    texts = {node.value for node in source if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    used = names_in(ADAPTER) | {text for text in texts if is_private(text)}

    assert used == SLOTS | METHODS | TYPES
    assert issubclass(aiohttp_internals.AiohttpConnection, RequestHandler)


def test_no_other_module_uses_a_private_name_of_aiohttp() -> None:
    subclasses = subclass_modules()
    modules = tracked("receiver/*.py", "receiver/**/*.py")
    aiohttp_users = [path for path in modules if "aiohttp" in path.read_text()]
    imported = {
        f"{path.name}: {alias.name}"
        for path in aiohttp_users
        if path != ADAPTER
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiohttp")
        for alias in node.names
        if is_private(alias.name)
    }
    accessed = {f"{path.name}: {name}" for path in subclasses for name in names_in(path) & private_names()}

    assert {path.name for path in subclasses} == {"endpoint.py", "fast_path_protocol.py", "protocol.py"}
    assert imported | accessed == set()


def test_aiohttp_is_pinned_to_one_minor_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert [text for text in project["dependencies"] if text.startswith("aiohttp")] == [
        "aiohttp>=3.14.5,<3.15"
    ]
