"""`make demo`, as a new user runs it: one command, until release B is worse, then Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

STOP_S = 90
HISTORY_S = 900


def answer(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        assert response.status == 200
        return bytes(response.read())


def processes_of(directory: Path) -> list[str]:
    """Return the command lines of running processes that name a directory."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # the process has ended
            continue
        if str(directory) in text:
            commands.append(text)
    return commands


def until_the_tour(process: subprocess.Popen[str]) -> str:
    """Return the output of the demo until its tour is complete."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if "The platform" in line:
            break
    return printed


def test_demo_shows_that_release_b_is_worse_and_leaves_only_its_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trace_drain_testing.shop.shop_demo"]
    command += ["--data", str(tmp_path), "--history-s", str(HISTORY_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            printed = until_the_tour(process)
            links = re.findall(r"^   (http\S+)$", printed, re.MULTILINE)
            pages = links[0].removesuffix("/platform")
            contents = {link: answer(link).decode() for link in links}
            compared: Any = json.loads(answer(f"{pages}/api/v1/compare?a=dpl_shop_a&b=dpl_shop_b"))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_S)

    assert process.returncode == 0, printed
    assert compared["verdict"].startswith("dpl_shop_b is worse")
    assert "3. Compare: dpl_shop_b is worse" in printed
    assert any("applyCoupons" in page for link, page in contents.items() if "/trace/" in link)
    assert processes_of(tmp_path) == []
    assert [path.parent for path in tmp_path.rglob("trace-drain.toml")] == list(tmp_path.iterdir())


def test_demo_ends_with_the_log_of_a_program_that_has_ended(tmp_path: Path) -> None:
    code = "import sys; sys.executable = '/bin/false'; from trace_drain_testing.shop.shop_demo import main; "
    code += f"sys.exit(main(['--data', {str(tmp_path)!r}]))"

    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=STOP_S, check=False
    )

    assert finished.returncode == 1
    assert "demo: emulator has ended" in finished.stderr
