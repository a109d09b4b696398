"""Undocumented names of clickhouse-connect: they exist in the installed version, and one module uses them."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from clickhouse_connect.driver import binding, httputil
from clickhouse_connect.driver._backend import httpcommon, orchestration
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.httpclient import HttpClient
from clickhouse_connect.driver.query import QueryContext, QueryResult
from clickhouse_connect.driver.transform import NativeTransform

from receiver.engine.driver_internals import FOREIGN_STATUS_TEXT, NO_VERSION_TEXT, escaped_already
from tests.tidy.test_tidy import ROOT, tracked

ADAPTER = ROOT / "receiver/engine/driver_internals.py"
DOCUMENTED = {
    "clickhouse_connect",
    "clickhouse_connect.driver.client.Client",
    "clickhouse_connect.driver.exceptions.ClickHouseError",
}
UNDOCUMENTED = {
    "clickhouse_connect.driver.binding.quote_identifier",
    "clickhouse_connect.driver.ctypes.RespBuffCls",
    "clickhouse_connect.driver.httpclient.HttpClient",
    "clickhouse_connect.driver.httputil.check_env_proxy",
    "clickhouse_connect.driver.httputil.get_pool_manager",
    "clickhouse_connect.driver.query.QueryContext",
    "clickhouse_connect.driver.query.QueryResult",
    "clickhouse_connect.driver.transform.NativeTransform",
}
PARAMETERS: dict[Callable[..., object], set[str]] = {
    binding.quote_identifier: {"identifier"},
    httputil.check_env_proxy: {"scheme", "host", "port"},
    httputil.get_pool_manager: {"http_proxy", "https_proxy"},
    QueryContext: {"query_formats"},
    NativeTransform.parse_response: {"source", "context"},
}
ATTRIBUTES = {(HttpClient, name) for name in ("headers", "http", "params", "url")} | {
    (Client, "server_settings"),
    (QueryResult, "named_results"),
    (NativeTransform, "parse_response"),
}


def imported_from_driver(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.partition(".")[0] == "clickhouse_connect"}


def attributes_of_self(cls: type) -> set[str]:
    """Names that a class defines, or that its methods set on `self`."""
    source = ast.walk(ast.parse(inspect.getsource(cls)))
    assigned = {
        node.attr for node in source if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return assigned | set(dir(cls))


@pytest.mark.parametrize(
    ("cls", "name"), [pytest.param(cls, name, id=name) for cls, name in sorted(ATTRIBUTES, key=str)]
)
def test_driver_client_has_attribute(cls: type, name: str) -> None:
    assert name in attributes_of_self(cls)


@pytest.mark.parametrize(
    "function", [pytest.param(function, id=function.__name__) for function in PARAMETERS]
)
def test_driver_function_has_parameters(function: Callable[..., object]) -> None:
    assert PARAMETERS[function] <= set(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        pytest.param(httpcommon, FOREIGN_STATUS_TEXT, id="status"),
        pytest.param(orchestration, NO_VERSION_TEXT, id="version"),
    ],
)
def test_driver_has_error_text(module: ModuleType, text: str) -> None:
    assert text in inspect.getsource(module)


def test_driver_binds_an_escaped_text_as_it_is() -> None:
    texts = {"a": r"x\'y\tz", "b": r"['q\'r']", "c": r"\N"}

    _, bound = binding.bind_query(
        "SELECT {a:String}, {b:Array(String)}, {c:Nullable(Int8)}", escaped_already(texts)
    )

    assert bound == {f"param_{name}": text for name, text in texts.items()}


def test_all_driver_names_in_the_adapter_are_checked() -> None:
    tree = ast.parse(ADAPTER.read_text())
    accessed = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}

    assert imported_from_driver(ADAPTER) - DOCUMENTED == UNDOCUMENTED
    assert {name for _, name in ATTRIBUTES} | {"request", "urlopen"} == accessed


def test_no_other_module_uses_undocumented_parts_of_the_driver() -> None:
    sources = tracked("receiver/*.py", "receiver/**/*.py")
    others = [path for path in sources if path != ADAPTER and "clickhouse_connect" in path.read_text()]
    used = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in others
        for name in imported_from_driver(path) - DOCUMENTED
    }
    accessed = {
        f"{path.relative_to(ROOT)}: {node.attr}"
        for path in others
        if imported_from_driver(path)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"http", "params", "server_settings"}
    }

    assert used | accessed == set()


def test_driver_is_pinned_to_one_minor_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = [text for text in project["dependencies"] if text.startswith("clickhouse-connect")]

    assert pins == ["clickhouse-connect>=1.12,<1.13"]
