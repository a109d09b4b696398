"""Style rules as tests: sizes, module docstrings, no machine paths, no open to-do items."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
README_LINES_MAX = 120


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return sorted(path for name in names if (path := ROOT / name).is_file())


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


PYTHON = tracked("*.py")
STUBS = tracked("*.pyi")
RUST = tracked("*.rs")
TEXT = tracked(
    "*.py", "*.pyi", "*.rs", "*.md", "*.toml", "*.sql", "*.sh", "Makefile", "*.service", "*.yml", "*.yaml"
)


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("module", PYTHON, ids=ids)
def test_python_module_is_documented_and_small(module: Path) -> None:
    source = module.read_text()
    tree = ast.parse(source)

    assert ast.get_docstring(tree), "expected a module docstring on the first line"
    assert source.count("\n") <= FILE_LINES_MAX, (
        f"the file is longer than {FILE_LINES_MAX} lines; split it by responsibility"
    )
    for function in functions(tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, (
            f"{function.name} has {lines} lines; expected at most {FUNCTION_LINES_MAX}"
        )


@pytest.mark.parametrize("module", RUST, ids=ids)
def test_rust_module_is_documented_and_small(module: Path) -> None:
    source = module.read_text()

    assert source.startswith("//!"), "expected a module docstring on the first line"
    assert source.count("\n") <= FILE_LINES_MAX, (
        f"the file is longer than {FILE_LINES_MAX} lines; split it by responsibility"
    )


@pytest.mark.parametrize("module", tracked("*.rs"), ids=ids)
def test_rust_function_is_short(module: Path) -> None:
    start: int | None = None
    indent = ""
    for number, line in enumerate(module.read_text().splitlines(), 1):
        if match := re.match(r"(\s*)(?:pub(?:\([a-z]+\))? )?(?:const )?fn \w+", line):
            start, indent = number, match[1]
        if start is not None and line.rstrip() == indent + "}":
            assert number - start < FUNCTION_LINES_MAX, (
                f"function at line {start} has {number - start + 1} lines; "
                f"expected at most {FUNCTION_LINES_MAX}"
            )
            start = None


@pytest.mark.parametrize("path", TEXT, ids=ids)
def test_text_has_no_to_do_marker(path: Path) -> None:
    if path == Path(__file__):
        return
    markers = re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b|unimplemented!|todo!", path.read_text())

    assert not markers, "do the work now, or file an issue"


@pytest.mark.parametrize("path", TEXT, ids=ids)
def test_text_has_no_path_of_a_specific_machine(path: Path) -> None:
    if path == Path(__file__):
        return
    paths = re.findall(r"(?<![\w.])/(?:work|root|home)/\S*|\.\./shared\S*", path.read_text())

    assert not paths, "these paths do not exist on user machines"


def test_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= README_LINES_MAX


@pytest.mark.parametrize("path", tracked("schemas/*.sql"), ids=ids)
def test_schema_statement_has_a_number_and_a_name(path: Path) -> None:
    assert re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", path.name)
    assert path.read_text().startswith("-- "), "expected a comment on the first line"
