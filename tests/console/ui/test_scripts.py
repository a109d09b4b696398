"""Tests of the pages' scripts that need no browser, run by Node."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("path", sorted(HERE.glob("*.test.mjs")), ids=lambda path: path.name)
def test_functions_of_the_scripts_pass_their_tests(path: Path) -> None:
    ran = subprocess.run(
        [str(NODE), "--test", str(path)], capture_output=True, text=True, check=False, timeout=60
    )

    assert ran.returncode == 0, ran.stdout


def test_scripts_contain_no_sink_that_would_create_markup() -> None:
    scripts = sorted((HERE.parents[2] / "receiver/console/ui/static").glob("*.js"))

    assert scripts
    for script in scripts:
        for sink in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert sink not in script.read_text(), f"{script.name}: {sink}"


def test_every_colour_that_is_used_is_defined() -> None:
    static = HERE.parents[2] / "receiver/console/ui/static"
    style = "".join(path.read_text() for path in static.glob("*.css"))
    scripts = "".join(path.read_text() for path in static.glob("*.js"))
    used = set(re.findall(r"var\((--[\w-]+)\)", style)) | set(re.findall(r'"(--[\w-]+)"', scripts))

    assert used <= set(re.findall(r"(--[\w-]+):", style))
