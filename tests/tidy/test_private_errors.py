"""An exception class is in a public tree of errors, or no module outside its package imports it."""

from __future__ import annotations

import ast
import builtins

from receiver import errors
from receiver.platform.client import errors as platform_errors
from tests.tidy.test_tidy import ROOT, tracked

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
    for path in tracked("receiver/*.py", "receiver/**/*.py")
}
TREES = (errors, platform_errors)
"""Modules whose errors any package may import."""
KNOWN = {
    name
    for module in (builtins, *TREES)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}


DEPTH_MAX = 3
"""Longest chain of classes between a private error and a known one."""

SHARED = {"Stopping"}
"""The store process raises it in the writer's `sleep`, to end the writer. The set only shrinks."""


def package_of(module: str) -> str:
    return module.split(".")[1]


def private_errors() -> dict[str, str]:
    """Exception classes outside of the public trees, with the package that defines them."""
    private: dict[str, str] = {}
    classes = [
        (module, node)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and module not in {tree.__name__ for tree in TREES}
    ]
    for _ in range(DEPTH_MAX):
        for module, node in classes:
            if any(ast.unparse(base).rpartition(".")[2] in {*KNOWN, *private} for base in node.bases):
                private[node.name] = package_of(module)
    return private


def test_error_outside_the_tree_is_private_to_its_package() -> None:
    private = private_errors()
    imports = [
        (module, alias.name)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        # A private class may have the same name as a public one.
        if isinstance(node, ast.ImportFrom) and node.module not in {tree.__name__ for tree in TREES}
        for alias in node.names
    ]

    assert {"NotATable", "EngineDamaged", "Unfinished"} <= set(private)
    assert [
        f"{module} imports {name}"
        for module, name in imports
        if name in private.keys() - SHARED and private[name] != package_of(module)
    ] == []
