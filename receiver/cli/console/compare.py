"""`trace-drain compare A B`: the verdict, then the differences, the worst first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import click

from receiver.cli.console.questions import command_of, run_question
from receiver.cli.console.shifts import shift_text
from receiver.cli.shell.api_client import Row
from receiver.cli.shell.table import lines_of, ms_text, shown_text
from receiver.console.queries.comparison.error_levels import FEWER, MORE, TOO_FEW_TRACES
from receiver.console.queries.comparison.operation_change import SAME, TOO_FEW, WORSE_WORDS
from receiver.printable import harmless_text
from receiver.sizes import counted, percent

ONE_SIDED_SHOWN = 10
"""Lines of each list below the table of operations."""
_HEAD = ("change", "service", "operation", "spans", "errors", "p50", "p95", "p99")
_CHANGED = frozenset({MORE, FEWER})
_ESTIMATES_HEAD = ("spans before sampling", "errors before sampling")


def _run(**options: str | None) -> None:
    run_question("compare", options, _report, _flat_operations)


compare = command_of("compare")
compare.callback = _run


def _report(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield _styled(harmless_text(row["verdict"]), _colour_of_verdict(row), bold=True)
        for side in ("a", "b"):
            yield f"{side.upper()}: {harmless_text(row[side])}, {_window_text(row['windows'][side])}"
        yield from _levels(row)
        yield from _operations(row)
        yield from _section(
            "new errors",
            row["totals"]["new_errors"],
            [
                f"{error['count']} times {_error_text(error)} "
                f"({_operation_text(error)}, trace {shown_text(error['trace_id'])})"
                for error in row["new_errors"]
            ],
        )
        for name in ("vanished", "appeared"):
            operations = [
                f"{_operation_text(operation)} ({counted(operation['count'], 'span')})"
                for operation in row[name]
            ]
            yield from _section(f"{name} operations", row["totals"][name], operations)
        yield from _section("attribute shifts from A to B", len(row["shifts"]), map(_shift, row["shifts"]))


def _flat_operations(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the operations without nesting: the numbers of both sides are keys such as `a_count`."""
    for row in rows:
        for operation in row["operations"]:
            sides = {side: operation.pop(side) for side in ("a", "b")}
            yield {
                **operation,
                **{f"{side}_{key}": value for side in sides for key, value in sides[side].items()},
            }


def _window_text(window: Row) -> str:
    spans, errors = window["estimated_spans"], window["estimated_errors"]
    before = "" if spans in (None, window["spans"]) else f" (before sampling {spans:,.0f} with {errors:,.0f})"
    ended = "" if window["is_complete"] else "; incomplete, the window ends later"
    return (
        f"{counted(window['spans'], 'span')} with {counted(window['errors'], 'error')}{before} "
        f"from {window['start'][:19]} to {window['end'][:19]} UTC{ended}"
    )


def _levels(row: Row) -> Iterator[str]:
    """Yield the traces with errors of both deployments, and of the services in which they changed."""
    whole, services = row["whole"], [each for each in row["services"] if each["change"] in _CHANGED]
    yield _level_text("traces with errors", whole)
    for service in services[:ONE_SIDED_SHOWN]:
        yield _level_text(f"traces with errors in service {shown_text(service['service'])}", service)
    if (more := len(services) - ONE_SIDED_SHOWN) > 0:
        yield f"{counted(more, 'more service')}; --format json has them"


def _level_text(title: str, level: Row) -> str:
    a, b = level["a"], level["b"]
    text = f"{title}: {a['errors']:,} of {a['traces']:,} → {b['errors']:,} of {b['traces']:,}"
    rates = f"{percent(a['error_rate'])} → {percent(b['error_rate'])}"
    detectable = level["detectable_error_rate"]
    sensitivity = "" if detectable is None else f"; a rise to {percent(detectable)} would be found"
    return _styled(f"{text} ({rates}), {level['change']}{sensitivity}", _colour_of(level["change"]))


def _operations(row: Row) -> Iterator[str]:
    if not row["operations"]:
        return
    has_estimates = any(map(_is_sampled, row["operations"]))
    cells = [
        (*_cells(operation), *(_estimates(operation) if has_estimates else ()))
        for operation in row["operations"]
    ]
    head, *lines = lines_of(
        (*_HEAD, *(_ESTIMATES_HEAD if has_estimates else ())),
        cells,
        optional=(*_ESTIMATES_HEAD, "p50", "p99", "spans"),
    )
    yield ""
    yield _styled(head, None, bold=True)
    for operation, line in zip(row["operations"], lines, strict=True):
        yield _styled(line, _colour_of(operation["change"]))
    if more := row["totals"]["operations"] - len(row["operations"]):
        yield f"{counted(more, 'more operation')}; --limit N shows more"


def _cells(operation: Row) -> tuple[str, ...]:
    a, b = operation["a"], operation["b"]
    return (
        operation["change"],
        operation["service"],
        operation["name"],
        f"{a['count']:,} → {b['count']:,}",
        f"{percent(a['error_rate'])} → {percent(b['error_rate'])}",
        *(
            _percentile(a[f"{name}_ms"], b[f"{name}_ms"], operation[f"{name}_change"])
            for name in ("p50", "p95", "p99")
        ),
    )


def _is_sampled(operation: Row) -> bool:
    return any(operation[side]["estimated_count"] not in (None, operation[side]["count"]) for side in "ab")


def _estimates(operation: Row) -> tuple[str, str]:
    """Return the numbers before sampling, with the intervals of the error rates."""
    sides = [operation[side] for side in "ab"]
    counts = ("-" if side["estimated_count"] is None else f"{side['estimated_count']:,.0f}" for side in sides)
    rates = (
        "-"
        if side["estimated_error_rate"] is None
        else f"{percent(side['estimated_error_rate'])} "
        f"({percent(side['estimated_error_rate_low'])} to {percent(side['estimated_error_rate_high'])})"
        for side in sides
    )
    return " → ".join(counts), " → ".join(rates)


def _percentile(a_ms: float | None, b_ms: float | None, change: float | None) -> str:
    durations = (ms_text(ms) if ms is not None else "-" for ms in (a_ms, b_ms))
    more = "" if change is None else f" ({change * 100:+.0f} %)"
    return f"{' → '.join(durations)}{more}"


def _section(title: str, total: int, lines: Iterable[str]) -> Iterator[str]:
    """Yield a list with its title, and the number of further lines; nothing if the list is empty."""
    first = [*lines][:ONE_SIDED_SHOWN]
    if not first:
        return
    yield ""
    yield _styled(title, None, bold=True)
    yield from (f"  {line}" for line in first)
    if total > len(first):
        yield f"  and {total - len(first)} more; --format json has them"


def _error_text(error: Row) -> str:
    return ": ".join(shown_text(error[key]) for key in ("type", "message") if error[key]) or "(no message)"


def _operation_text(operation: Row) -> str:
    return f"{shown_text(operation['service'])} {shown_text(operation['name'])}".strip()


def _shift(shift: Row) -> str:
    return f"{shift_text(shift)}  {percent(shift['rest_share'])} → {percent(shift['selection_share'])}"


def _colour_of_verdict(row: Row) -> str | None:
    if row["new_errors"]:
        return "red"
    # The first of each is the worst.
    worst = [row["whole"], *row["services"][:1], *row["operations"][:1]]
    colours = {_colour_of(each["change"]) for each in worst}
    return next((colour for colour in ("red", "green") if colour in colours), None)


def _colour_of(change: str) -> str | None:
    if not WORSE_WORDS.isdisjoint(change.split(", ")):
        return "red"
    return None if change in (SAME, TOO_FEW, TOO_FEW_TRACES) else "green"


def _styled(text: str, colour: str | None, **more: Any) -> str:  # noqa: ANN401 - click's styles
    """Return the text in a colour; `click.echo` removes it unless the output is a terminal."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour, **more)
