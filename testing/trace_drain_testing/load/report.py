"""Report of a run: a progress line every second; at the end a table or one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from receiver.sizes import counted
from trace_drain_testing.load.histogram import Histogram
from trace_drain_testing.load.run import Result
from trace_drain_testing.load.tally import Tally
from trace_drain_testing.load.verify import Findings

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


def progress_line(elapsed_s: float, tally: Tally) -> str:
    recent_ms, requests = quantiles_ms(tally.recent), tally.recent.count
    error = f"  latest: {tally.latest_error}" if tally.latest_error else ""
    return (
        f"{elapsed_s:5.0f} s  {requests:7,} requests/s  {requests * tally.spans_per_request:9,} spans/s  "
        f"p50 {_ms(recent_ms['p50'], '.1f')}  p99 {_ms(recent_ms['p99'], '.1f')}  "
        f"retries {tally.retries}  not acknowledged {tally.lost}{error}"
    )


def document(result: Result, findings: Findings | None) -> dict[str, Any]:
    tally = result.tally
    elapsed_s = max(result.elapsed_s, 1e-9)
    return {
        "requests": tally.latency.count,
        "spans": tally.spans,
        "rejected_spans": sum(tally.rejected.values()),
        "elapsed_s": round(result.elapsed_s, 6),
        "requests_per_s": round(tally.latency.count / elapsed_s, 1),
        "spans_per_s": round(tally.spans / elapsed_s, 1),
        "body_bytes_sent": tally.bytes_sent,
        "latency_ms": quantiles_ms(tally.latency),
        "answers": dict(sorted(tally.answers.items())),
        "said": tally.messages,
        "retries": tally.retries,
        "given_up": tally.given_up,
        "refused": tally.refused,
        "unfinished": tally.unfinished,
        "interrupted": result.was_interrupted,
        "hopeless": result.permanent_error or None,
        "load_cpu_s": round(result.cpu_s, 3),
        "verified": None if findings is None else findings.document(),
    }


def quantiles_ms(latency: Histogram) -> dict[str, float | None]:
    """Return quantiles in milliseconds; None if there are no latencies."""
    quantiles_s = {name: latency.quantile_s(share) for name, share in QUANTILES.items()}
    quantiles_s["max"] = latency.max_s if latency.count else None
    return {
        name: None if value_s is None else round(value_s * 1e3, 3) for name, value_s in quantiles_s.items()
    }


def lines(result: Result, findings: Findings | None) -> Iterator[tuple[str, str]]:
    report = document(result, findings)
    latencies = report["latency_ms"].items()
    requests, spans = counted(report["requests"], "request"), counted(report["spans"], "span")
    yield "acknowledged", f"{requests}, {spans} in {report['elapsed_s']:.1f} s"
    yield "rate", f"{report['requests_per_s']:,.0f} requests/s, {report['spans_per_s']:,.0f} spans/s"
    yield "latency", "  ".join(f"{name} {_ms(value, 'g')}" for name, value in latencies)
    yield (
        "answers",
        ", ".join(f"{answer}: {count:,}" for answer, count in report["answers"].items()) or "none",
    )
    yield "retries", f"{report['retries']:,}"
    yield (
        "not acknowledged",
        (
            f"{report['refused']:,} refused, {report['given_up']:,} given up, "
            f"{report['unfinished']:,} unfinished"
        ),
    )
    yield "rejected spans", f"{report['rejected_spans']:,}"
    yield "load generator", f"{_busy(result):.0%} of a core"
    for status, text in report["said"].items():
        yield f"message of {status}", text
    if findings is not None:
        yield from findings.lines()


def _busy(result: Result) -> float:
    return result.cpu_s / max(result.elapsed_s, 1e-9)


def _ms(value: float | None, form: str) -> str:
    return "\N{EN DASH}" if value is None else f"{value:{form}} ms"
