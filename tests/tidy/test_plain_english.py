"""Wording that CONTRIBUTING.md bans under "Plain English" must not come back.

The list only grows.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.tidy.test_tidy import ids, tracked

BANNED = re.compile(
    r"\b("
    r"whoever|whom|who (?:is|has|finds|asks|says|gets|sends|comes|waits)|"
    r"nobody|somebody|everybody|someone|"
    r"anew|let(?:s|ting)? go of|so (?:many|much) (?:of|for|a)|but for|of ours|"
    r"(?:is|are|was|were) told|tells? of|shown out|put back|keeps? word|done with|ha[sd] its turn|"
    r"the one door|good manners"
    r")\b",
    re.IGNORECASE,
)
BANNED_NAMES = {"anew", "everybody", "nobody", "one", "ones", "said", "somebody", "told", "whoever"}
"""Names that do not describe the value of a variable or parameter, or what a function does."""
REWRITTEN = (
    ".github/",
    "Makefile",
    "receiver/",
    "transcode/",
    "benchmarks/",
    "tests/console/api/",
    "tests/benchmarks/",
    "tests/cli/",
    "tests/config/",
    "tests/http/",
    "tests/intake/",
    "tests/console/tools/jaeger/",
    "tests/journal/",
    "tests/testing/load/",
    "tests/console/queries/",
    "tests/supervisor/",
    "tests/console/tools/tempo/",
    "tests/tidy/",
    "tests/test_",
    "deploy/",
    "docs/",
    "requirements/",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/reliability.py",
    "tests/conftest.py",
    "tests/dead_letters/",
    "tests/doubles/",
    "tests/durable/",
    "tests/e2e/",
    "tests/engine/",
    "tests/faults/",
    "tests/ledger/",
    "tests/redelivery/",
    "tests/store_process/",
    "tests/support/",
    "tests/torture/",
    "tests/writer/",
)
"""Files and folders that are held to the list."""
FILES_MIN = 500
"""Fewer files than any release has: a pattern that matches nothing must not pass."""
PATTERNS = (
    *("*.py", "*.pyi", "*.rs", "*.md", "*.toml", "*.yml", "*.yaml"),
    *("*.in", "*.service", "*.socket", "*Dockerfile", "Makefile"),
)
EXCEPTIONS = {
    "receiver/platform/explain/secret_rules.toml": {"whom"},  # the MIT license
    "tests/config/test_problems.py": {"nobody"},  # a home directory that does not exist
}


def test_text_avoids_the_banned_constructions() -> None:
    files = [
        path for path in tracked(*PATTERNS) if ids(path).startswith(REWRITTEN) and path != Path(__file__)
    ]

    violations = [
        f"{ids(path)}, line {number}: {match[0]}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in BANNED.finditer(line)
        if match[0].lower() not in EXCEPTIONS.get(ids(path), set())
    ]

    assert violations == []
    assert len(files) > FILES_MIN


def assigned_names(tree: ast.AST) -> set[str]:
    """Return the names of variables, parameters, functions and classes that a module defines."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def test_modules_define_no_banned_name() -> None:
    files = [path for path in tracked("*.py") if ids(path).startswith(REWRITTEN)]

    violations = [
        f"{ids(path)}: {name}"
        for path in files
        for name in assigned_names(ast.parse(path.read_text()))
        if name.lstrip("_").lower() in BANNED_NAMES
    ]

    assert violations == []
    assert len(files) > FILES_MIN
