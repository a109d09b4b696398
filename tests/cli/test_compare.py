"""Tests of `trace-drain compare`, `deployments` and `shifts` with a receiver that does not run."""

from __future__ import annotations

import csv
import json
import random
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from receiver.cli import main
from receiver.console.queries.comparison.shifts import shift_rows
from tests.support.cases import each_case
from tests.support.commands import run, stored_spans

SPANS = 60
TIME = r"[0-9-]{10}T[0-9:]{8}"
HOSTILE = "\x1b[2J\u202ename"


def row_of(rng: random.Random, number: int, deployment: str) -> dict[str, Any]:
    """Return a span of ten minutes; in the second deployment one operation fails and another is faster."""
    is_b = deployment == "dpl_b"
    age_s = (1_200 if is_b else 3_000) - number * 10
    operation = ["fails", "faster", HOSTILE, "new" if is_b else "gone"][number % 4]
    is_failing = is_b and operation == "fails"
    return {
        "Timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() - age_s)),
        "TraceId": f"{rng.getrandbits(100):032x}",
        "SpanId": f"{rng.getrandbits(60):016x}",
        "ServiceName": "compared",
        "SpanName": operation,
        "SpanKind": "Server",
        "DeploymentId": deployment,
        "StatusCode": "Error" if is_failing else "Ok",
        "StatusMessage": f"{HOSTILE} {number}" if is_failing else "",
        "Duration": (10 if is_b and operation == "faster" else 20) * 10**6 + rng.randrange(10**6),
        "SpanAttributes": {"region": "eu" if is_b else "us"},
    }


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory with the spans of two deployments."""
    rng = random.Random(31)
    rows = [row_of(rng, number, name) for name in ("dpl_a", "dpl_b") for number in range(SPANS)]
    sampled = [
        {
            **row,
            "DeploymentId": f"sampled_{row['DeploymentId'][-1]}",
            "ServiceName": "sampled",
            "SampleWeight": 4,
        }
        for row in rows
    ]
    with stored_spans(engine_dir, [*rows, *sampled]) as directory:
        yield directory


def test_comparison_as_json_has_the_documented_keys(data_dir: str) -> None:
    result = run("compare", "dpl_a", "dpl_b", "--data", data_dir, "--since", "1h", "--format", "json")

    assert (result.exit_code, result.stderr) == (0, "")
    row = json.loads(result.stdout)
    assert {"a", "b", "verdict", "operations", "new_errors", "vanished", "appeared"} <= row.keys()
    first = row["operations"][0]
    assert (first["service"], first["name"], first["change"]) == ("compared", "fails", "more errors")
    for side in ("a", "b"):
        assert {"count", "errors", "p50_ms", "p95_ms", "p99_ms"} <= first[side].keys()


def test_comparison_prints_the_verdict_then_the_worst_operation(data_dir: str) -> None:
    result = run("compare", "dpl_a", "dpl_b", "--data", data_dir)

    lines = result.stdout.splitlines()
    assert lines[0] == (
        "dpl_b is worse: compared fails errors 0 % → 100 % (n = 15 and 15), 1 new error, "
        "1 vanished operation, 1 new operation, 1 operation better"
    )
    assert re.fullmatch(rf"A: dpl_a, 60 spans with 0 errors from {TIME} to {TIME} UTC", lines[1])
    assert lines[2].startswith("B: dpl_b, 60 spans with 15 errors from 20")
    assert lines[3].startswith("traces with errors: 0 of 60 → 15 of 60 (0 % → 25 %), more errors; a rise to ")
    assert lines[4].startswith("traces with errors in service compared: 0 of 60 → 15 of 60 ")
    lines = lines[2:]
    assert lines[4].split() == ["change", "service", "operation", "spans", "errors", "p50", "p95", "p99"]
    assert [line.split("  ")[0] for line in lines[5:8]] == ["more errors", "faster", "same"]
    assert "15 → 15" in lines[5]
    assert "(-5" in lines[6] or "(-4" in lines[6]
    assert "compared gone (15 spans)" in result.stdout
    assert "compared new (15 spans)" in result.stdout
    assert "span.region=eu  0 % → 100 %" in result.stdout
    assert HOSTILE not in result.stdout
    assert result.stdout.replace("\n", "").isprintable()


def test_window_that_has_not_ended_is_reported(data_dir: str) -> None:
    result = run("compare", "dpl_a", "dpl_b", "--data", data_dir, "--first", "30m")

    a, b = result.stdout.splitlines()[1:3]
    assert a.endswith(" UTC")
    assert b.endswith(" UTC; incomplete, the window ends later")
    end = datetime.fromisoformat(b.partition(" to ")[2].partition(" ")[0])
    assert end.replace(tzinfo=UTC) <= datetime.now(UTC)


def test_sampled_deployments_have_the_numbers_before_sampling(data_dir: str) -> None:
    result = run("compare", "sampled_a", "sampled_b", "--data", data_dir)

    lines = result.stdout.splitlines()
    assert "60 spans with 15 errors (before sampling 240 with 60) from" in lines[2]
    lines = lines[2:]
    assert lines[4].endswith("spans before sampling  errors before sampling")
    assert "60 → 60" in lines[5]
    assert lines[5].rstrip().endswith("0 % (0 % to 20 %) → 100 % (80 % to 100 %)")


def test_comparison_as_csv_has_a_line_for_each_operation(data_dir: str) -> None:
    result = run("compare", "dpl_a", "dpl_b", "--data", data_dir, "--format", "csv")

    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["change"] for row in rows] == ["more errors", "faster", "same"]
    assert (rows[0]["name"], rows[0]["a_errors"], rows[0]["b_errors"]) == ("fails", "0", "15")
    assert float(rows[1]["b_p50_ms"]) < float(rows[1]["a_p50_ms"])


def test_comparison_has_colours_only_on_a_terminal_without_no_color(data_dir: str) -> None:
    arguments = ("compare", "dpl_a", "dpl_b", "--data", data_dir)

    on_terminal = CliRunner().invoke(main, arguments, color=True)
    without_colour = CliRunner().invoke(main, arguments, color=True, env={"NO_COLOR": "1"})
    in_pipe = run(*arguments)

    assert "\x1b[31m" in on_terminal.stdout
    assert "\x1b[32m" in on_terminal.stdout
    assert "\x1b[2J" not in on_terminal.stdout
    assert without_colour.stdout == in_pipe.stdout


@each_case(
    ("arguments", "code", "message"),
    [
        ("compare dpl_a dpl_a", 2, "b: expected another deployment than a"),
        ("compare dpl_a dpl_b --first x", 2, "first is not a length"),
        ("compare dpl_a", 2, "Missing argument 'B'"),
        ("compare dpl_a dpl_bb", 1, "did you mean 'dpl_b'?"),
        ("shifts root --against sevice=web", 2, "against, column 1: unknown field"),
    ],
)
def test_impossible_comparison_is_an_error(data_dir: str, arguments: str, code: int, message: str) -> None:
    result = run(*arguments.split(), "--data", data_dir)

    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_deployments_and_shifts_print_tables(data_dir: str) -> None:
    listed = run("deployments", "--data", data_dir, "--filter", "service=compared", "--format", "csv")
    shifted = run("shifts", "service=compared status=error", "--data", data_dir)

    assert [row[1] for row in csv.reader(listed.stdout.splitlines())] == ["deployment", "dpl_b", "dpl_a"]
    table = run("deployments", "--data", data_dir, "--filter", "service=compared").stdout.splitlines()
    assert re.search(r"first seen \(UTC\) +last seen \(UTC\)", table[0])
    assert len(re.findall(r" \d\d-\d\d \d\d:\d\d:\d\d\.\d{3}(?=  )", table[1])) == 2
    head, *lines = shifted.stdout.splitlines()
    assert head.split("  ")[0] == "attribute"
    assert any(line.startswith("operation=fails  ") and "100 % (15 of 15)" in line for line in lines)


def test_shifts_say_which_sides_are_samples(data_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("shifts", "service=compared status=error", "--data", data_dir)
    whole = run(*arguments).stdout
    monkeypatch.setattr(shift_rows, "__kwdefaults__", {"sample_spans": 50})
    sampled = run(*arguments).stdout

    assert "sample" not in whole
    assert re.fullmatch(r"Compared by a random sample of \d+ of the other spans\.", sampled.splitlines()[-1])
