"""Test that modules have no import cycles, including imports under `TYPE_CHECKING`."""

from __future__ import annotations

import ast

from tests.tidy.test_tidy import ROOT, tracked


def imports() -> dict[str, set[str]]:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in tracked("receiver/*.py", "receiver/**/*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        targets = {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
        targets |= {str(node.module) for node in nodes}
        graph[name] = {target for target in targets if target in modules and target != name}
    return graph


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for target in graph[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def test_no_module_imports_itself_through_others() -> None:
    graph = imports()

    assert {name for name in graph if name in reachable(graph, name)} == set()
