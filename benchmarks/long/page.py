"""LONG.md, out of what was measured."""

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
"""Slices at either end of the filling that stand for it."""

_HEAD = f"""\
# What only shows after a while

Written by `make bench-long`; every slice is in `long.json`. `ARGS="--help"` tells how to run a part.

The receiver is pinned to one core, load and sink share the others. The sink is a ClickHouse stand-in that
unpacks and decodes every row and keeps none. Bodies: {BODY.name}, {BODY.connections} clients. The load
harness runs in slices, each with spans of its own; after each it is looked at what the processes hold.
Latencies count from when a request was due. Disk: a write of 64 KiB and a sync by somebody else on the same
disk, up to twenty times a second meanwhile. Three numbers with strokes are supervisor / intake / store."""

_BACKLOG = """\
The sink is stopped by SIGSTOP: a ClickHouse that hangs, with an INSERT under way. Empty: `kill -9` of the
supervisor and a start with next to nothing in the journal; the sink goes on, and hangs again; a low load of
{rate:,.0f} spans a second. Then a load as fast as it is answered until the journal is full. Full: the low
load, `kill -9` and a start. Restarted: the low load. Then the sink goes on, with the low load beside.
Drained: the low load. A low load is {slices} slices of {slice_s:g} s, told by their median; filling is told
by the median of its first {ends} slices and its last {ends}.
"""

_COLUMNS: dict[Stage, str] = {
    "empty": "empty",
    "full": "full",
    "restarted": "full, restarted",
    "drained": "drained",
}
_HEADS = ("spans/s", "p50 ms", "p99 ms", "disk p99 ms", "journal MB", "RSS MiB")
_TABLES: dict[Stage, str] = {
    "filling": "Filling, as fast as it is answered:",
    "draining": "Draining, the low load beside:",
}


def page(results: Results) -> str:
    """LONG.md."""
    lines = [_HEAD]
    lines += _growth(results.growth) if results.growth else []
    lines += _backlog(results.backlog) if results.backlog else []
    return "\n".join(lines) + "\n"


def _growth(growth: Growth) -> Iterator[str]:
    slices = growth.slices
    minutes = sum(growth.slice_s for _ in slices) / 60
    yield f"\n## {growth.rate:,.0f} spans a second for {minutes:g} minutes\n"
    yield from _told(growth)
    if not slices:
        return
    idle_s = max(one.idle_s for one in slices)
    yield f"Slices of {growth.slice_s:g} s, at most {idle_s:.1f} s without load between them.\n"
    heads = ["slice", *_HEADS, "descriptors", "threads"]
    yield row(heads)
    yield row(["---"] * len(heads))
    for number, one in _every_fifth(slices):
        yield row([str(number), *_cells(one), _roles(one, _descriptors), _roles(one, _threads)])
    yield "\nMemory, MiB. The slope is by least squares; without the first third: when all was used once.\n"
    yield row(["process", "first", "last", "an hour", "an hour, without the first third"])
    yield row(["---"] * 5)
    for role in slices[0].processes:
        ends = [one.processes[role].rss_bytes / MIB for one in (slices[0], slices[-1])]
        slopes = [rss_slope_per_hour(some, role) for some in (slices, without_first_third(slices))]
        yield row([role, *(f"{mib:.1f}" for mib in ends), *map(_growth_in_mib, slopes)])
    for what, of in (("p99", _p99), ("disk p99", _disk_p99)):
        early, late = (
            milliseconds(median_of(some, of)) for some in (first_third(slices), last_third(slices))
        )
        yield f"\n{what}, median of the slices: {early} ms in the first third, {late} ms in the last."


def _backlog(backlog: Backlog) -> Iterator[str]:
    yield f"\n## A backlog of {backlog.bytes_wanted / 1e9:g} GB in the journal\n"
    yield from _told(backlog)
    yield _BACKLOG.format(rate=backlog.rate, slices=LOW_SLICES, slice_s=backlog.slice_s, ends=ENDS)
    columns = [backlog.stages.get(stage, []) for stage in _COLUMNS]
    filling, draining = (backlog.stages.get(stage, []) for stage in _TABLES)
    yield row(["", *_COLUMNS.values()])
    yield row(["---"] * (len(columns) + 1))
    yield row(["journal, MB", *(f"{some[-1].journal_bytes / 1e6:,.0f}" if some else "-" for some in columns)])
    for title, by_stage in (
        ("children end after the kill, s", backlog.orphans_s),
        ("then start to first 200, s", backlog.first_200_s),
    ):
        yield row([title, *(_number(by_stage.get(stage), ".2f") for stage in ("empty", "full")), "", ""])
    yield row(["low load, p50 ms", *(milliseconds(median_of(some, _p50)) for some in columns)])
    yield row(["low load, p99 ms", *(milliseconds(median_of(some, _p99)) for some in columns)])
    yield row(["low load, worst p99 ms", *(milliseconds(_worst_p99(some)) for some in columns)])
    yield row(["disk meanwhile, p50 ms", *(milliseconds(median_of(some, _disk_p50)) for some in columns)])
    yield row(["disk meanwhile, p99 ms", *(milliseconds(median_of(some, _disk_p99)) for some in columns)])
    yield from _saturated(filling)
    for role in ROLES:
        yield row([f"{role}, MiB (peak)", *(_memory(some, role) for some in columns)])
    yield from _table(_TABLES["filling"], filling)
    if backlog.drain_s is not None:
        yield from _drained(backlog, backlog.drain_s, draining)
    yield from _table(_TABLES["draining"], draining)


def _saturated(filling: Sequence[Slice]) -> Iterator[str]:
    """The first slices of the filling against the last ones."""
    count = min(ENDS, max(1, len(filling) // 2))
    rows: list[tuple[str, Callable[[Slice], float | None], str]] = [
        ("filling, spans/s", lambda one: one.spans_per_s, ",.0f"),
        ("filling, p50 ms", _p50, ".1f"),
        ("filling, p99 ms", _p99, ".1f"),
    ]
    for title, of, form in rows:
        early, late = median_of(filling[:count], of), median_of(filling[-count:], of)
        yield row([title, _number(early, form), _number(late, form), "", ""])


def _drained(backlog: Backlog, drain_s: float, draining: Sequence[Slice]) -> Iterator[str]:
    rate = backlog.drained_spans / max(drain_s, 1e-9)
    peaks = (max(one.processes[role].peak_bytes for one in draining) / MIB for role in ROLES)
    low = {
        "p50": median_of(draining, _p50),
        "p99": median_of(draining, _p99),
        "worst p99": _worst_p99(draining),
    }
    yield f"\nEmpty {drain_s:,.1f} s after the sink went on: {rate:,.0f} spans a second."
    yield f"Memory meanwhile at most {' / '.join(f'{peak:.0f}' for peak in peaks)} MiB."
    yield f"Low load meanwhile: {', '.join(f'{name} {milliseconds(ms)} ms' for name, ms in low.items())}."


def _table(title: str, slices: Sequence[Slice]) -> Iterator[str]:
    if slices:
        yield f"\n{title}\n"
        yield row(["after, s", *_HEADS])
        yield row(["---"] * (len(_HEADS) + 1))
        step = -(-len(slices) // LINES_MAX)
        for one in slices[::-step][::-1]:
            yield row([f"{one.at_s:,.0f}", *_cells(one)])


def _told(run: Run) -> Iterator[str]:
    yield f"`{run.about.command}` on: {run.about.machine}. {run.about.versions}."
    if run.about.beside:
        yield f"Beside it ran {run.about.beside}: the latencies are also theirs."
    if run.ended:
        yield f"**Ended early: {run.ended}.**"
    else:
        yield f"{run.acknowledged:,} spans acknowledged, {run.stored:,} rows in the sink."


def _cells(one: Slice) -> list[str]:
    latencies = map(milliseconds, (one.p50_ms, one.p99_ms, one.disk_p99_ms))
    return [f"{one.spans_per_s:,.0f}", *latencies, f"{one.journal_bytes / 1e6:,.0f}", _roles(one, _rss)]


def _every_fifth(slices: Sequence[Slice]) -> Iterator[tuple[int, Slice]]:
    """The first one, every fifth, and the last one, numbered."""
    for number, one in enumerate(slices, 1):
        if number in (1, len(slices)) or not number % EVERY:
            yield number, one


def _roles(one: Slice, of: Callable[[Process], str]) -> str:
    return " / ".join(of(one.processes[role]) for role in ROLES)


def _rss(held: Process) -> str:
    return f"{held.rss_bytes / MIB:.0f}"


def _descriptors(held: Process) -> str:
    return str(held.descriptors)


def _threads(held: Process) -> str:
    return str(held.threads)


def _memory(slices: Sequence[Slice], role: str) -> str:
    if not slices:
        return "-"
    held = slices[-1].processes[role]
    return f"{_rss(held)} ({held.peak_bytes / MIB:.0f})"


def _p50(one: Slice) -> float | None:
    return one.p50_ms


def _p99(one: Slice) -> float | None:
    return one.p99_ms


def _disk_p50(one: Slice) -> float | None:
    return one.disk_p50_ms


def _disk_p99(one: Slice) -> float | None:
    return one.disk_p99_ms


def _worst_p99(slices: Sequence[Slice]) -> float | None:
    return max((one.p99_ms for one in slices if one.p99_ms is not None), default=None)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _growth_in_mib(bytes_per_hour: float | None) -> str:
    return "-" if bytes_per_hour is None else f"{bytes_per_hour / MIB:+.1f}"
