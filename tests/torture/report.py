"""Report of a run: its violations, whether it proves anything, a table and a JSON document."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.torture.resource_monitor import CAPS, JOURNAL_BYTES_CAP
from tests.torture.run import FRESH_S, Result

REFUSAL_DELAY_S = 0.5
"""How late a sender may notice a refused connection on a busy machine."""


def violations(result: Result) -> list[str]:
    """Return every broken promise; empty: all held."""
    return [*_content_violations(result), *_state_violations(result)]


def _content_violations(result: Result) -> Iterator[str]:
    """Yield broken promises about spans and answers."""
    for what, count in result.findings.violations.items():
        yield f"{what}: {count}, such as {'; '.join(result.findings.examples[what])}"
    yield from result.outcomes.errors
    if refused := unexpected_refusals(result):
        yield f"{refused} connections were refused while the supervisor ran; expected none"


def _state_violations(result: Result) -> Iterator[str]:
    """Yield broken promises about the receiver's state after the run."""
    yield from result.fault_log.errors
    yield from result.errors
    for fresh_s in result.fresh_s:
        if fresh_s > FRESH_S:
            yield f"a new span was readable after {fresh_s:.1f} s; expected at most {FRESH_S:.0f} s"
    if result.left_in_journal:
        yield f"the journal holds {', '.join(result.left_in_journal[:5])}; expected nothing"
    if result.dead:
        yield f"dead letters: {', '.join(result.dead[:5])}; expected none"
    if result.log["tracebacks"]:
        yield f"the receiver's log holds {result.log['tracebacks']} tracebacks; expected none"
    if result.watch is not None:
        yield from result.watch.highest.exceeded_caps()


def unexpected_refusals(result: Result) -> int:
    """Count connections that were refused while a supervisor ran."""
    return sum(
        not any(down_s <= at_s <= up_s + REFUSAL_DELAY_S for down_s, up_s in result.fault_log.down_s)
        for at_s in result.outcomes.refused_at_s
    )


def observations(result: Result) -> dict[str, int]:
    """Return the observations that a run needs to prove anything."""
    answers, done = result.outcomes.answers, result.fault_log.done
    return {
        "acknowledged deliveries": sum(counts.acknowledged > 0 for counts in result.outcomes.sent.values()),
        "retries": result.outcomes.retries,
        "503 answers": answers["503"],
        "connection resets": answers["reset"],
        "rejected spans": result.outcomes.rejected_count,
        "segments in the journal at a kill and stored later": result.replayed,
        "kills of an intake": done["kill intake"],
        "kills of the store": done["kill store"],
        "kills of the supervisor": done["kill supervisor"],
        "kills during a commit": result.fault_log.kills_in_commit,
        "kills of the store before an INSERT": result.fault_log.kills_before_insert,
        "deliveries acknowledged twice, stored once": result.findings.counts[
            "deliveries acknowledged twice, stored once"
        ],
        "copies sent seconds later": result.outcomes.copies["seconds later"],
        "copies sent after a restart": result.outcomes.copies["after a restart"],
        "copies sent at the same time": result.outcomes.copies["at the same time"],
    }


def void_reasons(result: Result) -> list[str]:
    """Return why this run proves nothing; empty: it does."""
    return [f"the run has no {what}" for what, count in observations(result).items() if not count]


def summary(result: Result) -> dict[str, Any]:
    """Return the results as a JSON-compatible dictionary."""
    highest = result.watch.highest if result.watch else None
    plan = result.plan
    return {
        "at": result.at,
        "commit": commit(),
        "seed": plan.seed,
        "duration_s": plan.duration_s,
        "gap_s": plan.gap_s,
        "own_disk": plan.owns_disk,
        "verdict": verdict(result),
        "violations": violations(result),
        "violation_counts": dict(result.findings.violations),
        "void": void_reasons(result),
        "deliveries": len(result.outcomes.sent),
        "never_acknowledged": sum(not counts.acknowledged for counts in result.outcomes.sent.values()),
        "answers": dict(result.outcomes.answers),
        "answers_503": dict(result.outcomes.reasons),
        "rejected_spans": result.outcomes.rejected_count,
        "seen": observations(result),
        "faults": dict(sorted(result.fault_log.done.items())),
        "kills": result.fault_log.kills,
        "copies": dict(result.outcomes.copies),
        "failed_starts": result.fault_log.failed_starts,
        "store": dict(result.findings.counts),
        "fresh_s": [round(fresh_s, 2) for fresh_s in result.fresh_s],
        "drained_s": round(result.drained_s, 1),
        "log": dict(result.log),
        "highest": {role: asdict(usage) for role, usage in highest.usage.items()} if highest else {},
        "journal_bytes_highest": highest.journal_bytes if highest else 0,
        "caps": {role: asdict(usage) for role, usage in CAPS.items()} | {"journal_bytes": JOURNAL_BYTES_CAP},
    }


def commit() -> str:
    """Return the revision of the repository, or an empty string if unknown."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(
            command, cwd=Path(__file__).parent, check=False, capture_output=True, text=True
        ).stdout.strip()
    except OSError:
        return ""


def verdict(result: Result) -> str:
    if violations(result):
        return "violated"
    return "void" if void_reasons(result) else "held"


def table(numbers: dict[str, Any]) -> str:
    """Format the summary as text."""
    lines: list[str] = []
    for name, value in numbers.items():
        if isinstance(value, dict):
            lines += [f"{name}", *(f"    {key:<40} {part}" for key, part in value.items())]
        elif isinstance(value, list):
            lines += [f"{name:<44} {len(value)}", *(f"    {part}" for part in value)]
        else:
            lines.append(f"{name:<44} {value}")
    return "\n".join(lines)


def as_json(numbers: dict[str, Any]) -> str:
    return json.dumps(numbers, indent=2)
