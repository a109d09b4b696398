"""Text of statements is composed in one module: `receiver/engine/sql_text.py` says which text that may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.test_tidy import ROOT, tracked

COMPOSED = "receiver/engine/sql_text.py"
TEMPLATES = ("compose", "_compose", "rollup_compose", "trace_compose", "joined")
PROOF = "receiver/console/queries/rollup/proof.py"
"""Its statements are in the file of the proof that they make, so that both are read together."""
DECLARES_SQL = {
    # Composed statements, rewritten for the nodes of a cluster.
    "receiver/engine/cluster.py",
    PROOF,
    # Compiled filters: constants, placeholders and names of promoted columns.
    "receiver/console/queries/selection.py",
    "receiver/console/queries/filters/attribute_sql.py",
    "receiver/console/queries/filters/trace_sql.py",
    # Statements of operators that the guard has accepted.
    "receiver/console/queries/raw_sql/statement.py",
    "receiver/console/queries/raw_sql/client_statement.py",
}
"""Modules that may declare text that is no literal to be `Sql`."""


SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in tracked("receiver/*.py")}


def literals(tree: ast.Module) -> set[str]:
    """Return the names that only literals are assigned to."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    names = [(ast.unparse(node.targets[0]), node.value) for node in assigned]
    return {name for name, _ in names} - {name for name, value in names if not is_text(value)}


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def composed_of_other_text(source: str, *functions: str) -> Iterator[int]:
    """Yield the lines that call one of these functions with a first argument that is not a literal."""
    if not any(f"{function}(" in source for function in functions):
        return
    tree = ast.parse(source)
    known = literals(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            first = node.args[0]
            if not (is_text(first) or (isinstance(first, ast.Name) and first.id in known)):
                yield node.lineno


def test_no_statement_is_exempt_from_the_check_for_injection() -> None:
    assert [name for name, source in SOURCES.items() if "noqa: S608" in source] == [PROOF]


def test_templates_of_statements_are_literals() -> None:
    composing = [name for name, source in SOURCES.items() if any(composed_of_other_text(source, *TEMPLATES))]
    assert [name for name in composing if name != COMPOSED] == []


def test_only_compilers_and_the_guard_declare_other_text_to_be_sql() -> None:
    declaring = {name for name, source in SOURCES.items() if any(composed_of_other_text(source, "Sql"))}
    assert declaring - {COMPOSED} == DECLARES_SQL


def test_check_finds_text_that_is_no_literal() -> None:
    source = (
        "ours = 'SELECT {a}'\ncompose(ours)\ncompose(theirs)\ncompose(f'{theirs}')\nSql('SELECT' + theirs)\n"
    )

    assert list(composed_of_other_text(source, "compose", "Sql")) == [3, 4, 5]
