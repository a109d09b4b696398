"""How many instructions the core takes per span, against the numbers written down. `make check-speed`.

Instructions, not seconds: they do not move with the machine's load. They do move with whatever compiled the
core, so the numbers are compared only where the same tools made them; elsewhere this says so and passes.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRITTEN_DOWN = ROOT / "benchmarks" / "core_instructions.json"
EXAMPLE = ROOT / "transcode" / "target" / "release" / "examples" / "bench_core"
KINDS = ("protobuf-commit", "json-commit")
GROWTH_MAX = 0.10
"""More instructions than this above what is written down is a regression."""


def said(*command: str) -> str:
    """What a program says, on either stream."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 our own commands
    return done.stdout + done.stderr


def say(line: str) -> None:
    """For whoever called make."""
    sys.stdout.write(line + "\n")


def tools() -> dict[str, str]:
    """Whatever the number of instructions depends on besides our code."""
    return {
        "rustc": said("rustc", "--version").strip(),
        "cc": said("cc", "--version").splitlines()[0],
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
        "valgrind": said("valgrind", "--version").strip(),
    }


def instructions_per_span(kind: str) -> int:
    """One pass over the bodies of `make bench-core`, counted."""
    with tempfile.TemporaryDirectory() as folder:
        out = said(
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={folder}/out",
            "--toggle-collect=*Kind*pass*",
            str(EXAMPLE),
            kind,
            "--once",
        )
    counted, spans = re.search(r"Collected : (\d+)", out), re.search(r"(\d+) spans,", out)
    if counted is None or spans is None:
        sys.exit("callgrind said neither instructions nor spans; is its output of another form?")
    return int(counted[1]) // int(spans[1])


def grown(written_down: dict[str, int], found: dict[str, int]) -> list[str]:
    """One line for each kind of work that takes too many instructions more than it did."""
    return [
        f"{kind} takes {found[kind]} instructions a span; at most {GROWTH_MAX:.0%} above {before} expected"
        for kind, before in written_down.items()
        if found[kind] > before * (1 + GROWTH_MAX)
    ]


def count() -> dict[str, int]:
    """Builds the example and counts every kind of work."""
    manifest = str(ROOT / "transcode" / "Cargo.toml")
    said("cargo", "build", "--locked", "--release", "--manifest-path", manifest, "--example", "bench_core")
    return {kind: instructions_per_span(kind) for kind in KINDS}


def main() -> None:
    """Compares, or with --write writes down."""
    missing = [name for name in ("cargo", "rustc", "cc", "valgrind") if shutil.which(name) is None]
    if missing:
        say(f"instructions per span were not counted: {', '.join(missing)} missing")
        return
    if "--write" in sys.argv:
        noted = {"tools": tools(), "instructions_per_span": count()}
        WRITTEN_DOWN.write_text(json.dumps(noted, indent=2) + "\n")
        return
    noted = json.loads(WRITTEN_DOWN.read_text())
    others = [name for name, version in tools().items() if noted["tools"].get(name) != version]
    if others:
        say(f"instructions per span were not compared: another {', '.join(others)} than when written down")
        return
    found = count()
    say("instructions per span: " + ", ".join(f"{kind} {number}" for kind, number in found.items()))
    regressions = grown(noted["instructions_per_span"], found)
    if regressions:
        sys.exit("\n".join([*regressions, "if that is the price of something: make speed-record"]))


if __name__ == "__main__":
    main()
