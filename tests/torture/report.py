"""What a run amounts to: its violations, whether it proves anything at all, a table and a JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.torture.run import FRESH_S, Result
from tests.torture.watch import CAPS, JOURNAL_BYTES_CAP

REFUSED_NOTED_S = 0.5
"""A busy machine lets a sender note a refusal this much later."""


def violations(result: Result) -> list[str]:
    """Every promise that was broken; none: all held."""
    return [*_of_content(result), *_of_state(result)]


def _of_content(result: Result) -> Iterator[str]:
    """What was promised of spans and answers."""
    for what, count in result.findings.violations.items():
        yield f"{what}: {count}, such as {'; '.join(result.findings.examples[what])}"
    yield from result.outcomes.wrong
    if refused := refused_though_up(result):
        yield f"{refused} connections were refused while there was a supervisor; expected none"


def _of_state(result: Result) -> Iterator[str]:
    """What was promised of the receiver as it stands afterwards."""
    yield from result.damage.wrong
    yield from result.wrong
    for fresh_s in result.fresh_s:
        if fresh_s > FRESH_S:
            yield f"a fresh span was readable after {fresh_s:.1f} s; expected {FRESH_S:.0f} s at most"
    if result.left_in_journal:
        yield f"the journal holds {', '.join(result.left_in_journal[:5])}; expected nothing"
    if result.dead:
        yield f"dead letters: {', '.join(result.dead[:5])}; expected none"
    if result.log["tracebacks"]:
        yield f"the receiver's log holds {result.log['tracebacks']} tracebacks; expected none"
    if result.watch is not None:
        yield from result.watch.highest.beyond_caps()


def refused_though_up(result: Result) -> int:
    """Connections that were refused at a time when somebody should have held the port."""
    return sum(
        not any(down_s <= at_s <= up_s + REFUSED_NOTED_S for down_s, up_s in result.damage.down_s)
        for at_s in result.outcomes.refused_at_s
    )


def seen(result: Result) -> dict[str, int]:
    """What a run must have seen to prove anything."""
    answers, done = result.outcomes.answers, result.damage.done
    return {
        "acknowledged deliveries": sum(fate.acknowledged > 0 for fate in result.outcomes.fates.values()),
        "retries": result.outcomes.retries,
        "answers 503": answers["503"],
        "resets": answers["reset"],
        "rejected spans": result.outcomes.rejected_count,
        "segments replayed": result.replayed,
        "kills of an intake": done["kill intake"],
        "kills of the store": done["kill store"],
        "kills of the supervisor": done["kill supervisor"],
        "kills inside a commit": result.damage.kills_in_commit,
        "kills inside a hand-over": result.damage.kills_in_hand_over,
        "deliveries acknowledged twice, stored once": result.findings.counts[
            "deliveries acknowledged twice, stored once"
        ],
        "copies seconds later": result.outcomes.copies["seconds later"],
        "copies after a restart": result.outcomes.copies["after a restart"],
        "copies both at once": result.outcomes.copies["both at once"],
    }


def void_reasons(result: Result) -> list[str]:
    """Why this run proves nothing; none: it does."""
    return [f"saw no {what}" for what, count in seen(result).items() if not count]


def summary(result: Result) -> dict[str, Any]:
    """Everything in numbers, for machines."""
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
        "deliveries": len(result.outcomes.fates),
        "never_acknowledged": sum(not fate.acknowledged for fate in result.outcomes.fates.values()),
        "answers": dict(result.outcomes.answers),
        "answers_503": dict(result.outcomes.reasons),
        "rejected_spans": result.outcomes.rejected_count,
        "seen": seen(result),
        "faults": dict(sorted(result.damage.done.items())),
        "kills": result.damage.kills,
        "copies": dict(result.outcomes.copies),
        "starts_in_vain": result.damage.vain_starts,
        "store": dict(result.findings.counts),
        "fresh_s": [round(fresh_s, 2) for fresh_s in result.fresh_s],
        "drained_s": round(result.drained_s, 1),
        "log": dict(result.log),
        "highest": {role: asdict(usage) for role, usage in highest.usage.items()} if highest else {},
        "journal_bytes_highest": highest.journal_bytes if highest else 0,
        "caps": {role: asdict(usage) for role, usage in CAPS.items()} | {"journal_bytes": JOURNAL_BYTES_CAP},
    }


def commit() -> str:
    """Which state of the repository ran; empty: nobody knows."""
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
    """The same for people."""
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
