"""Wording that CONTRIBUTING.md bans under "Plain English" must not come back.

The list grows; the exceptions below only shrink.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.test_tidy import ROOT, ids, tracked

BANNED = re.compile(
    r"\b("
    r"whoever|whom|who (?:is|has|finds|asks|says|gets|sends|comes|waits)|"
    r"nobody|somebody|everybody|someone|"
    r"anew(?! *:)|let(?:s|ting)? go of|so (?:many|much) (?:of|for|a)|but for|of ours|"
    r"(?:is|are|was|were) told|tells? of|shown out|put back|keeps? word|done with|ha[sd] its turn|"
    r"the one door|good manners"
    r")\b",
    re.IGNORECASE,
)
REWRITTEN = (
    "receiver/",
    "deploy/",
    "requirements/",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "SECURITY.md",
)
"""Files and folders that are held to the list; the tests, the core, benchmarks and docs follow."""
EXCEPTIONS = {
    "receiver/_transcode.pyi": {"anew"},  # name of a parameter of the core
}


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in tracked("*.py", "*.pyi", "*.md", "*.toml", "*.service")
        if ids(path).startswith(REWRITTEN)
    ],
    ids=ids,
)
def test_text_avoids_the_banned_constructions(path: Path) -> None:
    allowed = EXCEPTIONS.get(str(path.relative_to(ROOT)), set())

    found = [
        f"line {number}: {match[0]}"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in BANNED.finditer(line)
        if match[0].lower() not in allowed
    ]

    assert found == []
