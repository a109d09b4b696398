"""Fault schedule: a function of the seed and the duration, computed before the run starts."""

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
OPENING_FAULTS: tuple[tuple[Kind, str], ...] = (
    ("kill", "intake"),
    ("kill", "store"),
    ("freeze", "intake"),
    ("kill", "supervisor"),
    ("freeze", "store"),
    ("restart", "supervisor"),
)
"""Faults that even the shortest run injects."""
OPENING_FREEZE_S = 10.0
"""Long enough to fill the small journal, so that senders receive 503."""
FREEZE_S = (0.2, 8.0)
LONG_FREEZE_S = 33.0
"""Longer than the supervisor's time-out for hung processes, which it kills."""
LONG_FREEZE_SHARE = 0.05
FILL_S = (1.0, 6.0)


@dataclass(frozen=True)
class Fault:
    """One fault to inject."""

    at_s: float
    """Time since the start of the run; later if the previous fault took longer."""
    kind: Kind
    role: str
    pick: float
    """0 to 1: selects among several processes of the role, and how long a kill waits in a busy process."""
    hold_s: float = 0.0
    """How long a process stays frozen or a disk full."""


def schedule(
    seed: int, duration_s: float, gap_s: float, *, with_fill: bool, kills_min: int = 0
) -> list[Fault]:
    """Return all faults in order: for 90 % of the duration, and longer until there are `kills_min` kills."""
    random_ = random.Random(f"{seed}/faults")
    shares = dict(SHARES) | ({("fill", "disk"): 1.0} if with_fill else {})
    kinds, weights = list(shares), list(shares.values())
    opening = [*OPENING_FAULTS, ("fill", "disk")] if with_fill else list(OPENING_FAULTS)
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
