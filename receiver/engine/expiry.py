"""Deletion by age in the embedded store: expired days are dropped, unless the wall clock is not trusted.

The TTL of the table alone deletes a day at any time within hours after it expired, and after a change of
the setting not before its parts are merged. A ClickHouse server is not affected: it has its own clock.

Deletion cannot be undone, so the wall clock is checked against the monotonic clock. Setting the wall clock
changes its difference from the time since boot. While that difference is not the trusted one, nothing may
expire. The trusted difference is saved in DATA/clock.json, so that a restart of the receiver does not make a
wrong clock trusted.

    the clock is set back to the expected time         trusted at once
    a step of at most a day, steady for an hour        trusted
    a larger step                                      trusted after an operator removes DATA/clock.json

Invariant: while the clock is not trusted, the engine is not opened, and an open engine deletes nothing.
Never: reports a step across a reboot, unless the clock went back, because the time that the machine was
off is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from receiver.clock import STEP_S_MIN, Belief, Times, read_belief
from receiver.durable.files import write_durably
from receiver.engine.store import COMPANION, DEPLOYMENT_EVENTS, TABLE, Store
from receiver.errors import OperatorError, StoreTrouble
from receiver.logs import limited

DROP_EVERY_S = 60.0
"""Interval at which expired days are dropped."""
_DAY_S = 86_400
_EXPIRED = """
SELECT partition_id, sum(rows) FROM system.parts
WHERE database = currentDatabase() AND table = {table:String} AND active AND partition_id < {before:String}
GROUP BY partition_id ORDER BY partition_id
"""

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


class Expiry:
    """Turns deletion by age on while the wall clock is trusted, and off otherwise."""

    def __init__(
        self, store: Store, clock: Clock, retention_days: int = 0, *, now_s: Callable[[], float] = time.time
    ) -> None:
        """`retention_days`: 0 if days do not expire."""
        self._store = store
        self._clock = clock
        self._retention_days = retention_days
        self._now_s = now_s
        self._drops_at_s = 0.0
        self._is_on = True
        self.warning = ""
        """Reason that deletion by age is stopped; empty if it is not."""

    def check(self) -> None:
        """Check the clock, and stop or start deletion by age accordingly."""
        reason = self._clock.check()
        if self._store.embedded and self._is_on == bool(reason):
            self._turn(is_on=not reason, reason=reason)
        self.warning = reason

    def drop_expired_days(self) -> None:
        """Drop each day of which all spans are older than the retention. The table must be ours."""
        is_due = self._store.embedded and self._retention_days and time.monotonic() >= self._drops_at_s
        if not is_due or self.warning:
            return
        self._drops_at_s = time.monotonic() + DROP_EVERY_S
        # The last span of a day expires when the day has been over for the retention.
        oldest_kept = datetime.fromtimestamp(self._now_s() - self._retention_days * _DAY_S, UTC)
        try:
            expired = self._store.rows(_EXPIRED, {"table": TABLE, "before": f"{oldest_kept:%Y%m%d}"})
            for day, rows in expired:
                self._store.command(f"ALTER TABLE {TABLE} DROP PARTITION ID '{day}'")
                structlog.get_logger().info(f"expired day {day} is deleted", spans=int(rows))
        except StoreTrouble as trouble:
            limited.warning("expiry: drop", "expired days cannot be deleted", error=trouble.label)

    def _turn(self, *, is_on: bool, reason: str) -> None:
        """Start or stop deletion. The engine forgets this when it restarts: see `refuse_to_open`."""
        try:
            for table in (TABLE, COMPANION, DEPLOYMENT_EVENTS):
                self._store.command(f"SYSTEM {'START' if is_on else 'STOP'} TTL MERGES {table}")
        # The state stays as it was, so the next check tries again.
        except StoreTrouble as trouble:
            limited.error("expiry", "deletion by age cannot be stopped or started", error=trouble.label)
            return
        self._is_on = is_on
        event = "deletion by age is started again" if is_on else "deletion by age is stopped"
        limited.warning(f"expiry: {is_on}", event, error=reason)


def refuse_to_open(clock: Clock, retention_days: int) -> None:
    """Raise `OperatorError` if the clock is not trusted: an engine starts to delete as soon as it is open."""
    if clock.reason and retention_days:
        raise OperatorError(f"{clock.reason}; the embedded store stays closed")
