"""Which faults come when: a function of the seed and the duration, known before the run begins."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kill", "freeze", "restart", "fill"]
SHARES: dict[tuple[Kind, str], float] = {
    ("kill", "intake"): 10,
    ("kill", "store"): 7,
    ("kill", "supervisor"): 1.5,
    ("freeze", "intake"): 0.3,
    ("freeze", "store"): 0.3,
    ("freeze", "supervisor"): 0.2,
    ("restart", "supervisor"): 0.2,
}
OPENING: tuple[tuple[Kind, str], ...] = (
    ("kill", "intake"),
    ("kill", "store"),
    ("freeze", "intake"),
    ("kill", "supervisor"),
    ("freeze", "store"),
    ("restart", "supervisor"),
)
"""What the shortest run sees too."""
OPENING_FREEZE_S = 10.0
"""Long enough for the small journal to fill, so that senders are told to wait."""
FREEZE_S = (0.2, 8.0)
LONG_FREEZE_S = 33.0
"""Longer than the supervisor's patience: it kills what it takes for hung."""
LONG_FREEZE_SHARE = 0.05
FILL_S = (1.0, 6.0)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    at_s: float
    """Since the begin of the run; later if the fault before it took longer."""
    kind: Kind
    role: str
    pick: float
    """0 to 1: which of several such processes, how deep into what it is doing."""
    hold_s: float = 0.0
    """How long a frozen process stays so, or a disk full."""


def schedule(
    seed: int, duration_s: float, gap_s: float, *, with_fill: bool, kills_min: int = 0
) -> list[Fault]:
    """All faults of a run, in order: for nine tenths of the time, and until there are kills enough."""
    random_ = random.Random(f"{seed}/faults")
    shares = dict(SHARES) | ({("fill", "disk"): 1.0} if with_fill else {})
    kinds, weights = list(shares), list(shares.values())
    opening = [*OPENING, ("fill", "disk")] if with_fill else list(OPENING)
    random_.shuffle(opening)
    faults: list[Fault] = []
    at_s = gap_s
    while at_s < duration_s * 0.9 or sum(fault.kind == "kill" for fault in faults) < kills_min:
        is_opening = bool(opening)
        kind, role = opening.pop() if opening else random_.choices(kinds, weights)[0]
        hold_s = _hold_s(kind, random_, is_long_run=duration_s > 600)
        if is_opening and (kind, role) == ("freeze", "store"):
            hold_s = OPENING_FREEZE_S
        faults.append(Fault(round(at_s, 3), kind, role, random_.random(), hold_s))
        at_s += random_.expovariate(1 / gap_s) + 0.2 + hold_s
    return faults


def _hold_s(kind: Kind, random_: random.Random, *, is_long_run: bool) -> float:
    if kind == "freeze":
        is_long = is_long_run and random_.random() < LONG_FREEZE_SHARE
        return LONG_FREEZE_S if is_long else round(random_.uniform(*FREEZE_S), 3)
    return round(random_.uniform(*FILL_S), 3) if kind == "fill" else 0.0
