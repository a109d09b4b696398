"""Run the fuzz targets in pieces, and record each piece, so that an interrupted run continues where it was.

    python transcode/fuzz/run.py --hours 24

The hours are CPU time of all targets and of all runs that `docs/results/fuzz.json` records. The corpus is
kept in `corpus/TARGET`, inputs that fail in `artifacts/TARGET`. Needs stable Rust and a C++ compiler: the
flags are those of `cargo fuzz run --sanitizer none`.

Invariant: a piece counts only after its result is in the record.
"""  # noqa: INP001 - a script, not a module of a package

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

FUZZ: Final = Path(__file__).resolve().parent
RECORD: Final = FUZZ.parent.parent / "docs" / "results" / "fuzz.json"
TARGETS: Final = ("unpack", "protobuf", "json")
TRIPLE: Final = "x86_64-unknown-linux-gnu"
PIECE_S: Final = 300
COVERAGE: Final = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table "
    "-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
)
"""Without these, libFuzzer does not learn which inputs reach new code."""
_PANIC: Final = re.compile(r"panicked at ([^\n]*):\n([^\n]*)")
_STATISTIC: Final = re.compile(r"^stat::(\w+):\s+(\d+)$", re.MULTILINE)
_EDGES: Final = re.compile(r"\bcov: (\d+)")

Record = dict[str, dict[str, Any]]


def build() -> Path:
    """Build the targets, and return their directory."""
    # With `--target`, the flags do not apply to build scripts.
    command = ["cargo", "build", "--release", "--locked", "--target", TRIPLE]
    subprocess.run(command, cwd=FUZZ, check=True, env={**os.environ, "RUSTFLAGS": COVERAGE})  # noqa: S603 - constants
    return FUZZ / "target" / TRIPLE / "release"


def piece(binary: Path, seconds: int) -> dict[str, Any]:
    """Fuzz one target, and return what happened."""
    corpus, artifacts = FUZZ / "corpus" / binary.name, FUZZ / "artifacts" / binary.name
    corpus.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    before_s = _cpu_s()
    run = subprocess.run(  # noqa: S603 - our own programs
        [
            *(binary, corpus, f"-artifact_prefix={artifacts}/", f"-max_total_time={seconds}"),
            *("-print_final_stats=1", "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536"),
        ],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    statistics = dict(_STATISTIC.findall(run.stderr))
    edges = _EDGES.findall(run.stderr)
    result: dict[str, Any] = {
        "cpu_s": round(_cpu_s() - before_s, 1),
        "executions": int(statistics.get("number_of_executed_units", 0)),
        "edges": int(edges[-1]) if edges else 0,
        "inputs": len(list(corpus.iterdir())),
    }
    if run.returncode:
        panic = _PANIC.search(run.stderr)
        result["finding"] = f"{panic[1]}: {panic[2]}" if panic else f"exit status {run.returncode}"
    return result


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def add(record: Record, target: str, result: dict[str, Any]) -> None:
    """Add a piece to the record, and write it."""
    total = record.setdefault(target, {"cpu_s": 0, "executions": 0, "findings": []})
    total["cpu_s"] = round(total["cpu_s"] + result["cpu_s"], 1)
    total["executions"] += result["executions"]
    total |= {"edges": result["edges"], "inputs": result["inputs"]}
    if "finding" in result and result["finding"] not in total["findings"]:
        total["findings"].append(result["finding"])
    total["at"] = datetime.now(UTC).isoformat(timespec="seconds")
    total["commit"] = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - that of the developer
        cwd=FUZZ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    draft = RECORD.with_suffix(".new")
    draft.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    draft.replace(RECORD)


def main() -> int:
    """Run pieces of the target with the least CPU time until the hours are reached."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, required=True, help="CPU hours of all targets and all runs")
    parser.add_argument("--piece", type=int, default=PIECE_S, help="seconds of a piece")
    arguments = parser.parse_args()
    binaries = build()
    record: Record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    while (done_s := sum(total["cpu_s"] for total in record.values())) < arguments.hours * 3600:
        target = min(TARGETS, key=lambda name: record.get(name, {}).get("cpu_s", 0))
        result = piece(binaries / target, arguments.piece)
        add(record, target, result)
        sys.stdout.write(f"{done_s + result['cpu_s']:.0f} s in total; {target}: {json.dumps(result)}\n")
        sys.stdout.flush()
        if not result["executions"]:
            sys.stdout.write(f"{target} did not run; its artifacts and corpus are in {FUZZ}\n")
            return 1
    return 1 if any(total["findings"] for total in record.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
