"""Generator of docs/reliability.md: the promise, every fault it was tested against, and the results."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.tiers import FAULT_TIER, PROMISES

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


class Case(NamedTuple):
    """A test with the marker `@pytest.mark.fault("…")`."""

    file: str
    name: str
    fault: str

    @property
    def id(self) -> str:
        """Node id of the test in pytest."""
        return f"{self.file}::{self.name}"


def cases() -> Iterator[Case]:
    """Yield every case, ordered by file and position."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for fault in _faults_of(node):
                    yield Case(str(path.relative_to(ROOT)), node.name, fault)


def _faults_of(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                yield ast.literal_eval(node.args[0])


def _results(name: str) -> dict[str, Any]:
    path = RESULTS / name
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return results


def _promise() -> str:
    """Return the promise from the README."""
    section = (ROOT / "README.md").read_text().partition("## What a 200 means\n\n")[2]
    return section.partition("\n## ")[0].strip()


def _case_rows() -> Iterator[str]:
    results = _results("faults.json")
    for case in cases():
        where = f"[{case.name}](../{case.file})"
        yield f"| {case.fault} | {where} | {_result_text(results.get(case.id))} |"


def _promise_rows() -> Iterator[str]:
    for promise in PROMISES:
        file, _, name = promise.test.partition("::")
        proof = f"[{name.partition('[')[0] or file}](../{file})"
        yield f"| {promise.text} | {proof} | {', '.join(_link(path) for path in promise.fault_tests)} |"


def _link(path: str) -> str:
    return f"[{path.removeprefix('tests/')}](../{path})"


def _fault_folders() -> str:
    return ", ".join(f"`{entry}`" for entry in FAULT_TIER if "::" not in entry)


def _result_text(outcome: dict[str, Any] | None) -> str:
    """Return the cells of a case: runs, variant, time and result."""
    if outcome is None:
        return "not recorded yet |"
    runs = outcome["passed"] + outcome["failed"]
    ended = "held" if runs and not outcome["failed"] else f"{outcome['failed']} failed" if runs else "skipped"
    return f"{runs}, {outcome['variant']}, {outcome['at']} | {ended}"


def _torture() -> Iterator[str]:
    run = _results("torture.json")
    if not run:
        yield "Not recorded yet."
        return
    yield f"Run of {run['at'][:10]}, commit {run['commit']}: {run['duration_s']:.0f} s, seed {run['seed']}."
    yield f"Verdict: **{run['verdict']}**."
    yield from ("", *(f"* {violation}" for violation in run["violations"]))
    yield from ("", "| | |", "|---|---|")
    yield from (f"| {what} | {count:,} |" for what, count in _numbers(run).items())
    yield from ("", "| peak (limit) | memory, MiB | descriptors | threads |", "|---|---|---|---|")
    for process, used in run["highest"].items():
        cap = run["caps"][process]
        memory = f"{used['rss_bytes'] >> 20} ({cap['rss_bytes'] >> 20})"
        rest = (f"{used[part]} ({cap[part]})" for part in ("descriptors", "threads"))
        yield f"| {process} | {memory} | {' | '.join(rest)} |"


def _numbers(run: dict[str, Any]) -> dict[str, float]:
    return {
        "spans lost": _violations(run, "acknowledged and lost"),
        "surplus rows": _violations(run, "sent once and stored twice", "redelivered and stored twice"),
        "spans with a wrong field": _violations(run, "a field differs"),
        "all violations": len(run["violations"]),
        "spans stored": run["store"].get("spans stored", 0),
        "kills": run["kills"],
        **run["seen"],
        "longest time until a new span is readable, s": max(run["fresh_s"], default=0.0),
        "peak journal size, bytes": run["journal_bytes_highest"],
    }


def _violations(run: dict[str, Any], *kinds: str) -> int:
    return int(sum(run["violation_counts"].get(kind, 0) for kind in kinds))


def _fuzz_rows() -> Iterator[str]:
    for target, run in sorted(_results("fuzz.json").items()):
        findings = "<br>".join(run["findings"]) or "none"
        last = f"{run['at'][:10]}, commit {run['commit']}"
        numbers = f"{run['cpu_s']:,.0f} | {run['executions']:,} | {run['edges']:,}"
        yield f"| {target} | {numbers} | {findings} | {last} |"


def reliability_page() -> str:
    """docs/reliability.md."""
    return "\n".join(
        [
            "# Reliability",
            "",
            "Generated by `make reliability` from the tests and their recorded results (docs/results).",
            "",
            "## The promise, and what it assumes",
            "",
            _promise(),
            "",
            "## Everything at once",
            "",
            "A receiver is under load while its processes are killed, frozen and restarted at random.",
            "The senders behave as OTLP clients do, and send some acknowledged deliveries again.",
            "Afterwards every stored span is compared with the span that was sent. To repeat the run:",
            "`make torture DURATION=30m SEED=7 KILLS=1000`; a short run is part of `make test-faults`.",
            "`make torture DURATION=10m ARGS=--steady` runs without faults but with queries, and checks that",
            "memory, descriptors, threads and directories do not grow.",
            "It lists the queries that the API asked to repeat (503).",
            "",
            *_torture(),
            "",
            "## Promise by promise",
            "",
            "`make test` proves each promise once with whole processes, and all rules in one process.",
            "`make test-faults` proves them again under faults.",
            "",
            "| promise | test in `make test` | tests in `make test-faults` |",
            "|---|---|---|",
            *_promise_rows(),
            "",
            "## Fault by fault",
            "",
            "To repeat all tests at full length: `make faults`. `make test-faults` runs a sample of those in",
            f"{_fault_folders()}; `make test` runs a sample of the others.",
            "The column *runs* has the number of runs, the variant (short or long) and the date.",
            "*held* means that every promise was kept.",
            "",
            "| fault | test | runs | result |",
            "|---|---|---|---|",
            *_case_rows(),
            "",
            "## Fuzzing",
            "",
            "libFuzzer mutates bodies of the conformance tests. A target panics if a decoder breaks a rule.",
            "`make fuzz HOURS=24` continues until the record has these hours of CPU.",
            "",
            "| target | CPU seconds | executions | edges reached | findings | last piece |",
            "|---|---|---|---|---|---|",
            *_fuzz_rows(),
            "",
        ]
    )
