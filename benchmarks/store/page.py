"""STORE.md, out of what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.report import row, spread
from benchmarks.store.results import Results, Sustained, Table
from benchmarks.store.segments import BODY_SPANS, DAYS, SEGMENT_ROWS, VARIED_MAX
from benchmarks.store.tables import Name

NAMES: dict[Name, str] = {"ours": "ours", "otel": "OpenTelemetry exporter's"}
LINES_OF_A_FEED = 20
GOAL_SPANS_PER_S = 150_000
"""Stored for half an hour, parts and queue flat."""

_HEAD = f"""\
# Storage benchmarks

Written by `make bench-store`; what every single run said is in `store.json`. `ARGS="--help"` tells
the options. Machine: {{machine}}. Engine: chDB, ClickHouse {{engine}}.

Two tables in one engine, filled in turn from the same segment files. Ours is as `schemas/` makes it,
filled by the product's own INSERT of the file, synced. The other is the default of the OpenTelemetry
Collector's exporter (`store/exporter.sql`: sorted by service, bloom filters on keys and values),
filled with its columns of the same files, not synced. The spans are the load harness's, encoded by
the core into segments of {SEGMENT_ROWS // BODY_SPANS * BODY_SPANS:,} rows, spread evenly over {DAYS}
whole days: 20 projects with services of their own and one service that all have, 11 attributes a
span. Ids, times, users, paths and statements are fresh in every span; a tenth of the spans, but at most
{VARIED_MAX:,}, differ in the rest, too.

Costs are CPU time of the whole process, user and system: seconds and rows per second on a wall clock
say more about the neighbours of a shared machine than about a table. Even CPU time moves by half when
the machine is busy, so tables are measured in turn, the least is the number to compare, and the rest
is its spread."""


def page(results: Results) -> str:
    """STORE.md."""
    lines = [_HEAD.format(machine=results.machine, engine=results.engine)]
    for size, tables in sorted(results.sizes.items(), key=lambda one: int(one[0])):
        lines += _of_size(int(size), tables)
    for _, fed in sorted(results.fed.items(), key=lambda one: int(one[0])):
        lines += _sustained(fed)
    return "\n".join(lines) + "\n"


def _of_size(spans: int, tables: dict[Name, Table]) -> Iterator[str]:
    ours, otel = tables["ours"], tables["otel"]
    yield f"\n## {spans:,} spans\n"
    yield f"{ours.rows:,} rows in each. Inserts without merges; then every day is merged into one part.\n"
    yield row(["", *(NAMES[name] for name in tables)])
    yield row(["---"] * 3)
    both = (ours, otel)
    yield row(["insert, rows/s/core", *(f"{1e6 / one.insert_cpu_s_per_million[0]:,.0f}" for one in both)])
    yield row(
        ["insert, CPU s per million rows", *(least(one.insert_cpu_s_per_million, ".2f") for one in both)]
    )
    merges = (one.merge_cpu_s / one.rows * 1e6 for one in both)
    yield row(["merge, CPU s per million rows", *(f"{cost:.2f}" for cost in merges)])
    yield row(["bytes per span, merged", *(f"{one.bytes_per_span:.1f}" for one in both)])
    yield "\nQuestions, CPU ms on one core, warm, at most 20 rows returned: least (median; highest).\n"
    yield row(["question", *(NAMES[name] for name in tables), "theirs / ours"])
    yield row(["---"] * 4)
    for question, ours_ms in ours.question_cpu_ms.items():
        otel_ms = otel.question_cpu_ms[question]
        ratio = min(otel_ms) / max(min(ours_ms), 1e-9)
        yield row([question, least(ours_ms, ",.0f"), least(otel_ms, ",.0f"), f"{ratio:.1f}"])


def _sustained(fed: Sustained) -> Iterator[str]:
    yield f"\n## {fed.spans_per_s:,.0f} spans a second for {fed.duration_s / 60:g} minutes\n"
    yield f"Our table only, into today, the segments made in the same process: {fed.verdict}."
    if fed.insert_ms:
        median, p99, longest = fed.insert_ms
        yield f"An INSERT with its syncs took {median:,.0f} ms; p99 {p99:,.0f}, at most {longest:,.0f}."
    if fed.moments and fed.moments[-1].rows:
        cost_s = fed.moments[-1].cpu_s / fed.moments[-1].rows * 1e6
        cores = cost_s * GOAL_SPANS_PER_S / 1e6
        yield f"To make, insert and merge a million spans took {cost_s:.1f} CPU seconds: at that, the goal of"
        yield f"{GOAL_SPANS_PER_S:,} a second takes {cores:.1f} cores. What was tried to make merges cheaper:"
        yield "[0014](../docs/decisions/0014-merges.md)."
    yield f"Machine: {fed.machine}. Engine: ClickHouse {fed.engine}.\n"
    heads = ["after, s", "rows", "queued segments", "parts", "merges", "rows being merged"]
    yield row([*heads, "times merged", "MiB", "cores used"])
    yield row(["---"] * 9)
    step = max(1, len(fed.moments) // LINES_OF_A_FEED)
    for now in fed.moments[step - 1 :: step]:
        counts = [now.at_s, now.rows, now.queued, now.parts, now.merges, now.merging_rows]
        merged, mebibytes = now.merged_rows / max(now.rows, 1), now.disk_bytes / (1 << 20)
        cores = now.cpu_s / max(now.at_s, 1e-9)
        whole = (f"{count:,.0f}" for count in counts)
        yield row([*whole, f"{merged:.1f}", f"{mebibytes:,.0f}", f"{cores:.2f}"])


def least(values: Sequence[float], form: str) -> str:
    """The least, then the median and the highest."""
    if len(values) < 2:  # noqa: PLR2004 - no spread
        return spread(values, form)
    ordered = sorted(values)
    median = ordered[len(ordered) // 2]
    return f"{ordered[0]:{form}} ({median:{form}}; {ordered[-1]:{form}})"
