"""Check of the core's instructions per span against a recorded baseline. `make check-speed`.

Instruction counts, unlike seconds, do not depend on the machine's load. They depend on the compiler and the
C library, so the check passes without a comparison, and prints so, if the tool versions have changed.
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
BASELINE = ROOT / "benchmarks" / "core_instructions.json"
EXAMPLE = ROOT / "transcode" / "target" / "release" / "examples" / "bench_core"
KINDS = ("protobuf-commit", "json-commit")
GROWTH_MAX = 0.10
"""Largest accepted increase over the baseline."""


def output_of(*command: str) -> str:
    """Return standard output and standard error of a command."""
    result = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 our own commands
    return result.stdout + result.stderr


def print_line(line: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(line + "\n")


def tools() -> dict[str, str]:
    """Return the versions of the tools that affect the instruction count."""
    return {
        "rustc": output_of("rustc", "--version").strip(),
        "cc": output_of("cc", "--version").splitlines()[0],
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
        "valgrind": output_of("valgrind", "--version").strip(),
    }


def instructions_per_span(kind: str) -> int:
    """Count the instructions of one pass over the bodies of `make bench-core`."""
    with tempfile.TemporaryDirectory() as folder:
        output = output_of(
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={folder}/out",
            "--toggle-collect=*Kind*pass*",
            str(EXAMPLE),
            kind,
            "--once",
        )
    counted, spans = re.search(r"Collected : (\d+)", output), re.search(r"(\d+) spans,", output)
    if counted is None or spans is None:
        sys.exit("no instruction count or span count in the callgrind output; expected both")
    return int(counted[1]) // int(spans[1])


def regression_messages(baseline: dict[str, int], counts: dict[str, int]) -> list[str]:
    """Return an error message for each kind of work whose instruction count grew too much."""
    return [
        f"{kind} takes {counts[kind]} instructions per span; expected at most {GROWTH_MAX:.0%} above {before}"
        for kind, before in baseline.items()
        if counts[kind] > before * (1 + GROWTH_MAX)
    ]


def count() -> dict[str, int]:
    """Build the example and count the instructions of every kind of work."""
    manifest = str(ROOT / "transcode" / "Cargo.toml")
    output_of(
        "cargo", "build", "--locked", "--release", "--manifest-path", manifest, "--example", "bench_core"
    )
    return {kind: instructions_per_span(kind) for kind in KINDS}


def main() -> None:
    """Compare with the baseline, or record it with --write."""
    missing = [name for name in ("cargo", "rustc", "cc", "valgrind") if shutil.which(name) is None]
    if missing:
        print_line(f"instructions per span not counted: {', '.join(missing)} missing")
        return
    if "--write" in sys.argv:
        baseline = {"tools": tools(), "instructions_per_span": count()}
        BASELINE.write_text(json.dumps(baseline, indent=2) + "\n")
        return
    baseline = json.loads(BASELINE.read_text())
    changed_tools = [name for name, version in tools().items() if baseline["tools"].get(name) != version]
    if changed_tools:
        print_line(f"instructions per span not compared: {', '.join(changed_tools)} differ from the baseline")
        return
    counts = count()
    print_line("instructions per span: " + ", ".join(f"{kind} {number}" for kind, number in counts.items()))
    regressions = regression_messages(baseline["instructions_per_span"], counts)
    if regressions:
        sys.exit(
            "\n".join([*regressions, "to accept the increase, record a new baseline: make speed-record"])
        )


if __name__ == "__main__":
    main()
