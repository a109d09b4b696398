"""Generator of benchmarks/STORE.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.report import row, spread
from benchmarks.store.results import Results, Sustained, Table
from benchmarks.store.segments import BODY_SPANS, DAYS, SEGMENT_ROWS, VARIED_MAX
from benchmarks.store.tables import Name

NAMES: dict[Name, str] = {"ours": "ours", "otel": "OpenTelemetry exporter's"}
SUSTAINED_ROWS_MAX = 20
GOAL_SPANS_PER_S = 150_000
"""Goal for half an hour without growth of the number of parts or of the queue."""

_HEAD = f"""\
# Storage benchmarks

Written by `make bench-store`; `store.json` has the results of every run. `ARGS="--help"` lists the
options. Machine: {{machine}}. Engine: chDB, ClickHouse {{engine}}.

Two tables in one engine, filled alternately from the same segment files. Our table is created from
`schemas/` and filled by the receiver's insertion of the file, with a sync. The other table is the default of
the OpenTelemetry Collector's exporter (`store/exporter.sql`: sorted by service, bloom filters on keys and
values), filled from the same files, without a sync. The load harness generates the spans, and the core
encodes them into segments of {SEGMENT_ROWS // BODY_SPANS * BODY_SPANS:,} rows, spread evenly over {DAYS}
whole days: 20 projects with their own services and one service that all projects have; traces of ten spans
that cross three services; 11 attributes per span. Every span has new ids, times, users, paths and
statements; a tenth of the spans, but at most {VARIED_MAX:,}, also differ in everything else.

Costs are CPU time (user and system) of the whole process, because wall-clock times on a shared machine
depend on other work. Even CPU time varies by half on a busy machine, so the tables are measured
alternately. Compare the lowest values; the other values show the spread."""


def page(results: Results) -> str:
    """Return the text of STORE.md."""
    lines = [_HEAD.format(machine=results.machine, engine=results.engine)]
    for size, tables in sorted(results.sizes.items(), key=lambda item: int(item[0])):
        lines += _of_size(int(size), tables)
    for _, run in sorted(results.sustained.items(), key=lambda item: int(item[0])):
        lines += _sustained(run)
    return "\n".join(lines) + "\n"


def _of_size(spans: int, tables: dict[Name, Table]) -> Iterator[str]:
    ours, otel = tables["ours"], tables["otel"]
    yield f"\n## {spans:,} spans\n"
    yield f"{ours.rows:,} rows in each. Inserts without merges; then every day is merged into one part.\n"
    yield row(["", *(NAMES[name] for name in tables)])
    yield row(["---"] * 3)
    both = (ours, otel)
    yield row(["insert, rows/s/core", *(f"{1e6 / table.insert_cpu_s_per_million[0]:,.0f}" for table in both)])
    yield row(
        [
            "insert, CPU s per million rows",
            *(with_spread(table.insert_cpu_s_per_million, ".2f") for table in both),
        ]
    )
    merges = (table.merge_cpu_s / table.rows * 1e6 for table in both)
    yield row(["merge, CPU s per million rows", *(f"{cost:.2f}" for cost in merges)])
    yield row(["bytes per span, merged", *(f"{table.bytes_per_span:.1f}" for table in both)])
    yield "\nQueries, CPU ms on one core, warm, at most 20 rows returned: lowest (median; highest).\n"
    yield row(["query", *(NAMES[name] for name in tables), "exporter's / ours"])
    yield row(["---"] * 4)
    for query, ours_ms in ours.query_cpu_ms.items():
        otel_ms = otel.query_cpu_ms[query]
        ratio = min(otel_ms) / max(min(ours_ms), 1e-9)
        yield row([query, with_spread(ours_ms, ",.0f"), with_spread(otel_ms, ",.0f"), f"{ratio:.1f}"])


def _sustained(run: Sustained) -> Iterator[str]:
    yield f"\n## {run.spans_per_s:,.0f} spans a second for {run.duration_s / 60:g} minutes\n"
    yield "Our table only, all spans of today, segments created in the same process, as large as the intake"
    yield f"seals them at this rate: {run.verdict}."
    if run.insert_ms:
        median, p99, longest = run.insert_ms
        yield f"An INSERT with its syncs took {median:,.0f} ms; p99 {p99:,.0f}, at most {longest:,.0f}."
    if run.moments and run.moments[-1].rows:
        cost_s = run.moments[-1].cpu_s / run.moments[-1].rows * 1e6
        cores = cost_s * GOAL_SPANS_PER_S / 1e6
        yield f"Creating, inserting and merging a million spans took {cost_s:.1f} CPU seconds; at that cost"
        yield f"the goal of {GOAL_SPANS_PER_S:,} spans a second takes {cores:.1f} cores."
        yield "Attempts to make merges cheaper: [0027](../docs/decisions/0027-store-v2-table.md)."
    yield f"Machine: {run.machine}. Engine: ClickHouse {run.engine}.\n"
    heads = ["after, s", "rows", "queued segments", "parts", "merges", "rows being merged"]
    yield row([*heads, "merges per row", "MiB", "cores used"])
    yield row(["---"] * 9)
    step = max(1, len(run.moments) // SUSTAINED_ROWS_MAX)
    for moment in run.moments[step - 1 :: step]:
        counts = [moment.at_s, moment.rows, moment.queued, moment.parts, moment.merges, moment.merging_rows]
        merges_per_row, mebibytes = moment.merged_rows / max(moment.rows, 1), moment.disk_bytes / (1 << 20)
        cores = moment.cpu_s / max(moment.at_s, 1e-9)
        texts = (f"{count:,.0f}" for count in counts)
        yield row([*texts, f"{merges_per_row:.1f}", f"{mebibytes:,.0f}", f"{cores:.2f}"])


def with_spread(values: Sequence[float], form: str) -> str:
    """Return the lowest value, then the median and the highest."""
    if len(values) < 2:  # noqa: PLR2004 - no spread
        return spread(values, form)
    ordered = sorted(values)
    median = ordered[len(ordered) // 2]
    return f"{ordered[0]:{form}} ({median:{form}}; {ordered[-1]:{form}})"
