"""Check of the wall clock against the monotonic clock, because deletion by age cannot be undone.

Setting the wall clock changes its difference from the time since boot. While that difference is not the
trusted one, nothing may expire. The trusted difference is kept in DATA/clock.json, so that a restart of the
receiver does not make a wrong clock trusted.

    the clock is set back to the expected time         trusted at once
    a step of at most a day, steady for an hour        trusted
    a larger step                                      trusted after an operator removes DATA/clock.json

Never: reports a step across a reboot, unless the clock went back, because the time that the machine was
off is unknown.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from receiver.clock import STEP_S_MIN, Belief, Times, read_belief
from receiver.durable.files import write_durably
from receiver.logs import limited

STEADY_S = 3_600.0
TRUSTED_STEP_S_MAX = 86_400.0
SAVE_INTERVAL_S = 60.0


class Clock:
    """The wall clock, compared with the monotonic clock."""

    def __init__(self, path: Path, times: Times | None = None) -> None:
        self._path = path
        self._times = times or Times()
        self._is_saved = False
        self._steady_at_s = 0.0
        self._steady_since_s = 0.0
        self._trusted = self._load()
        self.reason = ""
        """Reason that the clock is not trusted; empty if it is trusted."""
        self.check()

    def check(self) -> str:
        """Compare the clocks. Returns the reason that the wall clock is not trusted, or an empty string."""
        step_s = self._times.began_s - self._trusted.began_s
        if abs(step_s) >= STEP_S_MIN and (self._is_settled(step_s) or self._is_accepted()):
            self._save(self._now())
            step_s = 0.0
        self.reason = _step_message(step_s, self._path) if abs(step_s) >= STEP_S_MIN else ""
        # Written every minute, so that after a reboot a clock that went back is noticed to the minute.
        is_stale = self._times.wall_s() - self._trusted.wall_s >= SAVE_INTERVAL_S
        if not self.reason and (is_stale or not self._is_saved):
            self._save(msgspec.structs.replace(self._trusted, wall_s=self._times.wall_s()))
        return self.reason

    def _is_settled(self, step_s: float) -> bool:
        # A further step starts the hour again.
        if abs(step_s - self._steady_at_s) >= STEP_S_MIN:
            self._steady_at_s, self._steady_since_s = step_s, self._times.running_s()
        is_steady = self._times.running_s() - self._steady_since_s >= STEADY_S
        return is_steady and abs(step_s) <= TRUSTED_STEP_S_MAX

    def _is_accepted(self) -> bool:
        """Return whether the operator accepted the clock by removing DATA/clock.json."""
        # Only a file that was written can be removed: on a full disk it may never have existed.
        return self._is_saved and not self._path.exists()

    def _now(self) -> Belief:
        return Belief(boot=self._times.boot, began_s=self._times.began_s, wall_s=self._times.wall_s())

    def _load(self) -> Belief:
        now, before = self._now(), read_belief(self._path)
        if before is None:
            return now
        self._is_saved = True
        # The same boot: a restart of the receiver must not make a wrong clock trusted.
        if before.boot == now.boot:
            return before
        # Time off is unknown but not negative, so only a clock that went back is certainly wrong.
        went_back_s = max(0.0, before.wall_s - now.wall_s)
        return msgspec.structs.replace(now, began_s=now.began_s + went_back_s)

    def _save(self, belief: Belief) -> None:
        # Also if the file cannot be written: this process then still has it.
        self._trusted = belief
        try:
            write_durably(self._path, msgspec.json.encode(belief) + b"\n")
        except OSError as error:
            limited.warning(
                "clock", "clock state cannot be saved", path=str(self._path), error=error.strerror
            )
        else:
            self._is_saved = True


def _step_message(step_s: float, path: Path) -> str:
    direction = "ahead of" if step_s > 0 else "behind"
    until = (
        f"has been steady for {STEADY_S / 3600:.0f} h"
        if abs(step_s) <= TRUSTED_STEP_S_MAX
        else f"an operator removes '{path.name}' from the data directory"
    )
    offset = f"wall clock is {abs(step_s):.0f} s {direction} the expected time"
    return f"{offset}; deletion by age is stopped until it is correct again or {until}"
