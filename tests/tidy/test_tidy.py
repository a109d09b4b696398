"""Style rules as tests: sizes, module docstrings, no machine paths, no open to-do items."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
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
TEXT = tracked(
    "*.py", "*.pyi", "*.rs", "*.md", "*.toml", "*.sql", "*.sh", "Makefile", "*.service", "*.yml", "*.yaml"
)


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def too_long(source: str) -> Iterator[str]:
    if source.count("\n") > FILE_LINES_MAX:
        yield f"the file is longer than {FILE_LINES_MAX} lines; split it by responsibility"


def python_problems(module: Path) -> Iterator[str]:
    source = module.read_text()
    tree = ast.parse(source)
    if not ast.get_docstring(tree):
        yield "expected a module docstring on the first line"
    yield from too_long(source)
    for function in functions(tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield f"{function.name} has {lines} lines; expected at most {FUNCTION_LINES_MAX}"


def rust_problems(module: Path) -> Iterator[str]:
    source = module.read_text()
    if not source.startswith("//!"):
        yield "expected a module docstring on the first line"
    yield from too_long(source)
    start: int | None = None
    indent = ""
    for number, line in enumerate(source.splitlines(), 1):
        if match := re.match(r"(\s*)(?:pub(?:\([a-z]+\))? )?(?:const )?fn \w+", line):
            start, indent = number, match[1]
        if start is not None and line.rstrip() == indent + "}":
            if number - start >= FUNCTION_LINES_MAX:
                yield f"the function at line {start} has over {FUNCTION_LINES_MAX} lines"
            start = None


def text_problems(path: Path) -> Iterator[str]:
    if path != Path(__file__):
        text = path.read_text()
        for marker in re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b|unimplemented!|todo!", text):
            yield f"{marker}: do the work now, or file an issue"
        for name in re.findall(r"(?<![\w.])/(?:work|root|home)/\S*|\.\./shared\S*", text):
            yield f"{name} does not exist on user machines"


# One test for all files: a test for each would take longer to start than to run.
@pytest.mark.parametrize(
    ("files", "problems_of"),
    [
        pytest.param(PYTHON, python_problems, id="Python modules are documented and small"),
        pytest.param(tracked("*.rs"), rust_problems, id="Rust modules are documented and small"),
        pytest.param(TEXT, text_problems, id="text has no to-do marker and no path of a specific machine"),
    ],
)
def test_files_follow_the_style(files: list[Path], problems_of: Callable[[Path], Iterator[str]]) -> None:
    assert [f"{ids(path)}: {problem}" for path in files for problem in problems_of(path)] == []


def test_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= README_LINES_MAX


@pytest.mark.parametrize("path", tracked("schemas/*.sql"), ids=ids)
def test_schema_statement_has_a_number_and_a_name(path: Path) -> None:
    assert re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", path.name)
    assert path.read_text().startswith("-- "), "expected a comment on the first line"
