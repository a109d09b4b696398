"""Generator of benchmarks/LONG.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.long.backlog import LOW_SLICES
from benchmarks.long.growth import (
    BODY,
    first_third,
    last_third,
    median_of,
    rss_slope_per_hour,
    without_first_third,
)
from benchmarks.long.results import Backlog, Growth, Process, Results, Run, Slice, Stage
from benchmarks.report import milliseconds, row

MIB = 1 << 20
ROLES = ("supervisor", "intake", "store")
EVERY = 5
LINES_MAX = 12
ENDS = 3
"""Number of slices at the start and at the end of the filling whose medians are shown."""

_HEAD = f"""\
# Long-running benchmarks

Written by `make bench-long`; `long.json` has every slice. `ARGS="--help"` lists the options for partial runs.

The receiver is pinned to one core; load and sink share the others. The sink is a ClickHouse stand-in that
decompresses and decodes every row and stores none. Bodies: {BODY.name}, {BODY.connections} clients. The load
harness runs in slices, each with its own spans; the memory of the processes is read after each slice.
Latencies count from the time a request was due. Disk: a write of 64 KiB and a sync by another thread on the
same disk, up to twenty times a second during the load. Three numbers separated by slashes are those of
supervisor / intake / store."""

_BACKLOG = """\
SIGSTOP stops the sink, like a ClickHouse server that hangs during an INSERT. Empty: `kill -9` of the
supervisor and a start with an almost empty journal; the sink resumes and hangs again; a low load of
{rate:,.0f} spans a second. Then a closed-loop load until the journal is full. Full: the low load,
`kill -9` and a start. Restarted: the low load. Then the sink resumes during the low load. Drained: the low
load. Results of the low load are medians of {slices} slices of {slice_s:g} s; results of the filling are
medians of its first {ends} and of its last {ends} slices.
"""

_COLUMNS: dict[Stage, str] = {
    "empty": "empty",
    "full": "full",
    "restarted": "full, restarted",
    "drained": "drained",
}
_HEADS = ("spans/s", "p50 ms", "p99 ms", "disk p99 ms", "journal MB", "RSS MiB")
_TABLES: dict[Stage, str] = {"filling": "Filling, closed loop:", "draining": "Draining during the low load:"}


def page(results: Results) -> str:
    """Return the text of LONG.md."""
    lines = [_HEAD]
    lines += _growth(results.growth) if results.growth else []
    lines += _backlog(results.backlog) if results.backlog else []
    return "\n".join(lines) + "\n"


def _growth(growth: Growth) -> Iterator[str]:
    slices = growth.slices
    minutes = sum(growth.slice_s for _ in slices) / 60
    yield f"\n## {growth.rate:,.0f} spans a second for {minutes:g} minutes\n"
    yield from _run_summary(growth)
    if not slices:
        return
    idle_s = max(time_slice.idle_s for time_slice in slices)
    yield f"Slices of {growth.slice_s:g} s, at most {idle_s:.1f} s without load between them.\n"
    heads = ["slice", *_HEADS, "descriptors", "threads"]
    yield row(heads)
    yield row(["---"] * len(heads))
    for number, time_slice in _every_fifth(slices):
        yield row(
            [str(number), *_cells(time_slice), _roles(time_slice, _descriptors), _roles(time_slice, _threads)]
        )
    yield "\nMemory, MiB, and its growth per hour by least squares. The first third includes warm-up.\n"
    yield row(["process", "first", "last", "per hour", "per hour, without the first third"])
    yield row(["---"] * 5)
    for role in slices[0].processes:
        ends = [time_slice.processes[role].rss_bytes / MIB for time_slice in (slices[0], slices[-1])]
        slopes = [rss_slope_per_hour(group, role) for group in (slices, without_first_third(slices))]
        yield row([role, *(f"{mib:.1f}" for mib in ends), *map(_growth_in_mib, slopes)])
    for title, value_of in (("p99", _p99), ("disk p99", _disk_p99)):
        early, late = (
            milliseconds(median_of(group, value_of)) for group in (first_third(slices), last_third(slices))
        )
        yield f"\n{title}, median of the slices: {early} ms in the first third, {late} ms in the last."


def _backlog(backlog: Backlog) -> Iterator[str]:
    yield f"\n## A backlog of {backlog.bytes_wanted / 1e9:g} GB in the journal\n"
    yield from _run_summary(backlog)
    yield _BACKLOG.format(rate=backlog.rate, slices=LOW_SLICES, slice_s=backlog.slice_s, ends=ENDS)
    columns = [backlog.stages.get(stage, []) for stage in _COLUMNS]
    filling, draining = (backlog.stages.get(stage, []) for stage in _TABLES)
    yield row(["", *_COLUMNS.values()])
    yield row(["---"] * (len(columns) + 1))
    yield row(
        ["journal, MB", *(f"{group[-1].journal_bytes / 1e6:,.0f}" if group else "-" for group in columns)]
    )
    for title, by_stage in (
        ("children exit after the kill, s", backlog.orphans_s),
        ("then start to first 200, s", backlog.first_200_s),
    ):
        yield row([title, *(_number(by_stage.get(stage), ".2f") for stage in ("empty", "full")), "", ""])
    yield row(["low load, p50 ms", *(milliseconds(median_of(group, _p50)) for group in columns)])
    yield row(["low load, p99 ms", *(milliseconds(median_of(group, _p99)) for group in columns)])
    yield row(["low load, worst p99 ms", *(milliseconds(_worst_p99(group)) for group in columns)])
    yield row(
        ["disk during the load, p50 ms", *(milliseconds(median_of(group, _disk_p50)) for group in columns)]
    )
    yield row(
        ["disk during the load, p99 ms", *(milliseconds(median_of(group, _disk_p99)) for group in columns)]
    )
    yield from _saturated(filling)
    for role in ROLES:
        yield row([f"{role}, MiB (peak)", *(_memory(group, role) for group in columns)])
    yield from _table(_TABLES["filling"], filling)
    if backlog.drain_s is not None:
        yield from _drained(backlog, backlog.drain_s, draining)
    yield from _table(_TABLES["draining"], draining)


def _saturated(filling: Sequence[Slice]) -> Iterator[str]:
    """Yield rows that compare the first slices of the filling with the last."""
    count = min(ENDS, max(1, len(filling) // 2))
    rows: list[tuple[str, Callable[[Slice], float | None], str]] = [
        ("filling, spans/s", lambda time_slice: time_slice.spans_per_s, ",.0f"),
        ("filling, p50 ms", _p50, ".1f"),
        ("filling, p99 ms", _p99, ".1f"),
    ]
    for title, value_of, form in rows:
        early, late = median_of(filling[:count], value_of), median_of(filling[-count:], value_of)
        yield row([title, _number(early, form), _number(late, form), "", ""])


def _drained(backlog: Backlog, drain_s: float, draining: Sequence[Slice]) -> Iterator[str]:
    rate = backlog.drained_spans / max(drain_s, 1e-9)
    peaks = (max(time_slice.processes[role].peak_bytes for time_slice in draining) / MIB for role in ROLES)
    low = {
        "p50": median_of(draining, _p50),
        "p99": median_of(draining, _p99),
        "worst p99": _worst_p99(draining),
    }
    yield f"\nEmpty {drain_s:,.1f} s after the sink resumed: {rate:,.0f} spans a second."
    yield f"Peak memory while draining: {' / '.join(f'{peak:.0f}' for peak in peaks)} MiB."
    latencies = ", ".join(f"{name} {milliseconds(ms)} ms" for name, ms in low.items())
    yield f"Low load while draining: {latencies}."


def _table(title: str, slices: Sequence[Slice]) -> Iterator[str]:
    if slices:
        yield f"\n{title}\n"
        yield row(["after, s", *_HEADS])
        yield row(["---"] * (len(_HEADS) + 1))
        step = -(-len(slices) // LINES_MAX)
        for time_slice in slices[::-step][::-1]:
            yield row([f"{time_slice.at_s:,.0f}", *_cells(time_slice)])


def _run_summary(run: Run) -> Iterator[str]:
    yield f"`{run.about.command}` on: {run.about.machine}. {run.about.versions}."
    if run.about.concurrent_work:
        yield f"Running at the same time: {run.about.concurrent_work}, which affects the latencies."
    if run.error:
        yield f"**Ended early: {run.error}.**"
    else:
        yield f"{run.acknowledged:,} spans acknowledged, {run.stored:,} rows in the sink."


def _cells(time_slice: Slice) -> list[str]:
    latencies = map(milliseconds, (time_slice.p50_ms, time_slice.p99_ms, time_slice.disk_p99_ms))
    return [
        f"{time_slice.spans_per_s:,.0f}",
        *latencies,
        f"{time_slice.journal_bytes / 1e6:,.0f}",
        _roles(time_slice, _rss),
    ]


def _every_fifth(slices: Sequence[Slice]) -> Iterator[tuple[int, Slice]]:
    """Yield the first slice, every fifth and the last, with their numbers."""
    for number, time_slice in enumerate(slices, 1):
        if number in (1, len(slices)) or not number % EVERY:
            yield number, time_slice


def _roles(time_slice: Slice, text_of: Callable[[Process], str]) -> str:
    return " / ".join(text_of(time_slice.processes[role]) for role in ROLES)


def _rss(process: Process) -> str:
    return f"{process.rss_bytes / MIB:.0f}"


def _descriptors(process: Process) -> str:
    return str(process.descriptors)


def _threads(process: Process) -> str:
    return str(process.threads)


def _memory(slices: Sequence[Slice], role: str) -> str:
    if not slices:
        return "-"
    process = slices[-1].processes[role]
    return f"{_rss(process)} ({process.peak_bytes / MIB:.0f})"


def _p50(time_slice: Slice) -> float | None:
    return time_slice.p50_ms


def _p99(time_slice: Slice) -> float | None:
    return time_slice.p99_ms


def _disk_p50(time_slice: Slice) -> float | None:
    return time_slice.disk_p50_ms


def _disk_p99(time_slice: Slice) -> float | None:
    return time_slice.disk_p99_ms


def _worst_p99(slices: Sequence[Slice]) -> float | None:
    return max((time_slice.p99_ms for time_slice in slices if time_slice.p99_ms is not None), default=None)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _growth_in_mib(bytes_per_hour: float | None) -> str:
    return "-" if bytes_per_hour is None else f"{bytes_per_hour / MIB:+.1f}"
