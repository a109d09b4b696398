"""Generator of benchmarks/QUERY.md."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.query.results import CaseResult, Ingest, IngestLatency, Results, SizeResult
from benchmarks.report import row
from benchmarks.store.page import with_spread
from benchmarks.store.segments import DAYS, VARIED_MAX

ACKNOWLEDGED_P99_MS = 50.0
"""Goal for the 99th percentile of acknowledgements beside queries."""
GOAL_SPANS = 10_000_000
"""Table size of the goals. Larger tables are shown without goals."""

_HEAD = f"""\
# Query benchmarks

Written by `make bench-query`; `query.json` has every run. `ARGS="--help"` lists the options.

Every question of the API is asked through the functions that answer the API, of the embedded store. Where
one statement on the default table of the OpenTelemetry Collector's exporter (`store/exporter.sql`) gives
the same answer, this statement (`query/exporter.py`) runs in the same engine and process, alternately with
ours. Both tables are filled from the same segments, as for [STORE.md](STORE.md), spread evenly over {DAYS}
whole days, with each day merged into one part, and our rollups are complete. The spans have the load
harness's shape: a tenth of the spans, but at most {VARIED_MAX:,}, differ in everything; others differ in
ids, times, users, paths and statements.

A query has one thread. **Warm** is the lowest CPU time (user and system, whole process, with Python's part)
of several runs, then the median and the highest. **Cold** is the wall-clock time of the first answer of a
new process after the engine's caches were dropped; the files stay in the operating system's cache. The
engine's cache of query conditions is off, because it makes a repeated query cheaper than the first. Goals
are CPU time, warm, at {GOAL_SPANS:,} spans. Smaller tables show the same goals, which they meet more
easily. The load average shows how busy the machine was: above its number of cores, even CPU times rise by
up to half, so compare the columns of a row.

The attempts to meet the goals, including those that were not adopted, are in the decision notes
[0028](../docs/decisions/0028-promoted-attributes.md) (promoted attributes),
[0029](../docs/decisions/0029-rollups.md) and [0030](../docs/decisions/0030-attributes.md) (rollups),
[0031](../docs/decisions/0031-search-speed.md) (search) and
[0032](../docs/decisions/0032-service-map-join-and-weights.md) (service map, errors, comparison)."""


def page(results: Results) -> str:
    """Return the text of QUERY.md."""
    lines = [_HEAD]
    for size in sorted(results.sizes.values(), key=lambda size: (size.spans, size.projects)):
        lines += _of_size(size)
    if results.ingest is not None:
        lines += _of_ingest(results.ingest)
    return "\n".join(lines) + "\n"


def _of_size(size: SizeResult) -> Iterator[str]:
    projects = f"{size.projects:,} project{'s' if size.projects > 1 else ''}"
    yield f"\n## {size.spans:,} spans in {projects}\n"
    yield f"Machine: {size.machine}, load average {size.load:.1f}. Engine: ClickHouse {size.engine}.\n"
    heads = ["question", "lines", "goal, ms", "ours, warm CPU ms", "wall ms", "cold, ms"]
    yield row([*heads, "exporter's, warm CPU ms", "cold, ms", "exporter's / ours"])
    yield row(["---"] * 9)
    for case in size.cases.values():
        yield _line(case, has_goals=size.spans <= GOAL_SPANS)


def _line(case: CaseResult, *, has_goals: bool) -> str:
    ours, otel = case.tables["ours"], case.tables.get("otel")
    least_ms = min(ours.warm_cpu_ms)
    goal = _goal(case.goal_ms, least_ms) if has_goals else ""
    cells = [case.name, f"{ours.lines:,}", goal, with_spread(ours.warm_cpu_ms, ",.0f")]
    cells += [f"{min(timing.wall_ms for timing in ours.warm):,.0f}", f"{ours.cold.wall_ms:,.0f}"]
    if otel is None:
        return row([*cells, "", "", ""])
    ratio = min(otel.warm_cpu_ms) / max(least_ms, 1e-9)
    return row([*cells, with_spread(otel.warm_cpu_ms, ",.0f"), f"{otel.cold.wall_ms:,.0f}", f"{ratio:.1f}"])


def _goal(goal_ms: float | None, least_ms: float) -> str:
    """Return the goal, and by how much it is missed."""
    if goal_ms is None:
        return ""
    verdict = "met" if least_ms <= goal_ms else f"missed: {least_ms / goal_ms:.2f} times"
    return f"≤ {goal_ms:,.0f}, {verdict}"


def _of_ingest(ingest: Ingest) -> Iterator[str]:
    plan = ingest.plan
    yield "\n## Ingest beside queries\n"
    yield f"Machine: {ingest.machine}, load average {ingest.load:.1f}.\n"
    yield (
        f"The receiver has {plan.stored_spans:,} spans in its embedded store and takes {plan.rate:,.0f} "
        f"spans per second. Rounds of {plan.seconds:,.0f} s without queries alternate with rounds in which "
        "clients ask heavy questions in a loop (`query/ingest.py`), each from an address of its own. All "
        "processes share all cores. Latency is measured by `trace-drain load`, from the time at which a "
        "request was due: lowest of the rounds (median; highest). A **sync** is a small write with its sync "
        "on the same disk meanwhile, without the receiver: an acknowledgement waits for at least one. Goal "
        f"of the p99 beside queries: {_goal(ACKNOWLEDGED_P99_MS, _least_p99_ms(ingest.rounds))}.\n"
    )
    yield row(["clients with queries", "p50, ms", "p99, ms", "slowest, ms", "answers", "sync p99, ms"])
    yield row(["---"] * 6)
    for clients in sorted({each.clients for each in ingest.rounds}):
        yield _ingest_line(clients, [each for each in ingest.rounds if each.clients == clients])


def _least_p99_ms(rounds: list[IngestLatency]) -> float:
    """Return the p99 of the best round with queries: other processes only make a round worse."""
    return min(each.p99_ms for each in rounds if each.clients)


def _ingest_line(clients: int, rounds: list[IngestLatency]) -> str:
    latencies = [[each.p50_ms for each in rounds], [each.p99_ms for each in rounds]]
    cells = [f"{clients}", *(with_spread(values, ",.1f") for values in latencies)]
    answers = f"{sum(each.answers for each in rounds):,}"
    slowest = f"{max(each.max_ms for each in rounds):,.0f}"
    return row([*cells, slowest, answers, with_spread([each.sync_p99_ms for each in rounds], ",.1f")])
