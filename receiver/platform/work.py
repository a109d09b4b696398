"""Background work for the hosting platform in the store process: applies webhooks, probes installations.

Invariant: no response of the platform affects the receipt and the storage of spans.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path

from receiver.metrics import Metrics
from receiver.platform.installations.lifecycle import LifeCycle, probe
from receiver.platform.installations.platform_records import open_records
from receiver.platform.installations.records import DISABLED_S_MAX, State
from receiver.platform.webhooks.changes import Applier
from receiver.platform.webhooks.inbox import Inbox
from receiver.settings import Settings
from receiver.store_process.repeating_thread import RepeatingThread

APPLY_EVERY_S = 1.0
FORGET_EVERY_S = 3_600.0
PROBE_EVERY_S = 5.0
"""Intervals between two steps of each thread."""
STOP_S = 1.0
"""Time to wait for a running step when the process stops. An unfinished step loses nothing."""
STATES: tuple[State, ...] = ("active", "disabled", "deleted", "removed")


class PlatformWork:
    """The records of the platform, the threads that change them, and their metrics."""

    def __init__(self, settings: Settings) -> None:
        """Read the records."""
        self.records = records = open_records(settings)
        inbox = Inbox(Path(settings.data_dir))
        self._applier = Applier(inbox, records, time.time)
        self._states: Counter[State] = Counter()
        self._deleted_at_s: list[float] = []
        """When the platform deletes each installation that is disabled now."""
        remembered_s = settings.platform.webhook.remembered_s
        self._threads = [
            RepeatingThread("webhooks", self._apply, APPLY_EVERY_S),
            RepeatingThread("forget", partial(self._applier.forget_old, remembered_s), FORGET_EVERY_S),
        ]
        self._cycle = LifeCycle(records.installations, partial(probe, settings.platform))
        self._probing = RepeatingThread("installations", self._cycle.probe_due, PROBE_EVERY_S)
        # Without an address, there is nothing to call.
        if settings.platform.base_url:
            self._threads.append(self._probing)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def request_probe(self) -> None:
        """Probe the active installations now, because a call showed that one of them is disabled."""
        self._cycle.request_probe()
        self._probing.wake()

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop(STOP_S)

    def report(self, metrics: Metrics) -> None:
        for outcome, count in self._applier.outcomes.copy().items():
            metrics.set("webhooks_applied", count, outcome=outcome)
        metrics.set("webhooks_waiting", self._applier.waiting_count)
        for state in STATES:
            metrics.set("platform_installations", self._states[state], state=state)
        left_s = min((at_s - time.time() for at_s in self._deleted_at_s), default=DISABLED_S_MAX)
        metrics.set("platform_disabled_left_seconds", max(0.0, left_s))

    def _apply(self) -> None:
        self.records.complete()
        self._applier.apply_waiting()
        # In this thread: the event loop must not wait for a record that is being written.
        installations = self.records.installations.all()
        self._states = Counter(installation.state for installation in installations)
        self._deleted_at_s = [at_s for each in installations if (at_s := each.deleted_at_s) is not None]
