"""Whether the wall clock can be believed: deletion by age is the one thing that a wrong clock cannot undo.

A clock that is set moves against the time that has passed since the machine was started. While the two
disagree, nothing may expire. What was believed last is kept in DATA/clock.json, so that a restart in between
does not make a wrong clock right.

    it is set back to where it should be            believed at once
    a step of a day at most, steady for an hour     believed
    a larger step                                   believed once somebody removes DATA/clock.json

Never: an opinion after the machine was started anew, unless the clock went back: how long it was off, nobody
knows.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from receiver.clock import STEP_S_MIN, Belief, Times, noted
from receiver.durable.files import write_durably
from receiver.logs import limited

STEADY_S = 3_600.0
BELIEVED_STEP_S_MAX = 86_400.0
NOTE_EVERY_S = 60.0


class Clock:
    """The wall clock, held against the one that nobody can set."""

    def __init__(self, path: Path, times: Times | None = None) -> None:
        self._path = path
        self._times = times or Times()
        self._is_noted = False
        self._steady_at_s = 0.0
        self._steady_since_s = 0.0
        self._belief = self._believed_before()
        self.reason = ""
        """Why the clock is not believed; empty: it is."""
        self.look()

    def look(self) -> str:
        """Compare. Why the clock is not believed; empty: it is."""
        step_s = self._times.began_s - self._belief.began_s
        if abs(step_s) >= STEP_S_MIN and (self._is_settled(step_s) or self._is_accepted()):
            self._keep(self._now())
            step_s = 0.0
        self.reason = _told(step_s, self._path) if abs(step_s) >= STEP_S_MIN else ""
        is_stale = self._times.wall_s() - self._belief.wall_s >= NOTE_EVERY_S
        if not self.reason and (is_stale or not self._is_noted):
            self._keep(msgspec.structs.replace(self._belief, wall_s=self._times.wall_s()))
        return self.reason

    def _is_settled(self, step_s: float) -> bool:
        if abs(step_s - self._steady_at_s) >= STEP_S_MIN:
            self._steady_at_s, self._steady_since_s = step_s, self._times.running_s()
        is_steady = self._times.running_s() - self._steady_since_s >= STEADY_S
        return is_steady and abs(step_s) <= BELIEVED_STEP_S_MAX

    def _is_accepted(self) -> bool:
        """Somebody has taken our note away."""
        return self._is_noted and not self._path.exists()

    def _now(self) -> Belief:
        return Belief(boot=self._times.boot, began_s=self._times.began_s, wall_s=self._times.wall_s())

    def _believed_before(self) -> Belief:
        now, before = self._now(), noted(self._path)
        if before is None:
            return now
        self._is_noted = True
        if before.boot == now.boot:
            return before
        went_back_s = max(0.0, before.wall_s - now.wall_s)
        return msgspec.structs.replace(now, began_s=now.began_s + went_back_s)

    def _keep(self, belief: Belief) -> None:
        self._belief = belief
        try:
            write_durably(self._path, msgspec.json.encode(belief) + b"\n")
        except OSError as reason:
            limited.warning("clock", "what the clock is believed cannot be noted", why=reason.strerror)
        else:
            self._is_noted = True


def _told(step_s: float, path: Path) -> str:
    way = "ahead" if step_s > 0 else "behind"
    until = (
        f"it is steady for {STEADY_S / 3600:.0f} h"
        if abs(step_s) <= BELIEVED_STEP_S_MAX
        else f"'{path.name}' is removed from the data directory"
    )
    off = f"wall clock is {abs(step_s):.0f} s {way} of where it should be"
    return f"{off}; until it is back or {until} nothing expires"
