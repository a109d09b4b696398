"""Work of the store process for the hosting platform: applies webhooks, follows the life of installations.

Invariant: spans are received and stored whatever the platform answers.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from receiver.installations.lifecycle import LifeCycle
from receiver.installations.platform_records import PlatformRecords
from receiver.installations.probe import probe
from receiver.installations.records import DISABLED_S_MAX
from receiver.metrics import Metrics
from receiver.settings import DAY_S, Settings
from receiver.store_process.repeating_thread import RepeatingThread
from receiver.webhooks.applying import Applier
from receiver.webhooks.inbox import Inbox

APPLY_EVERY_S = 1.0
FORGET_EVERY_S = 3_600.0
PROBE_EVERY_S = 5.0
"""Interval at which the threads look for work."""
STOP_S = 1.0
"""Time to wait for a step that runs when the process stops. A webhook that it does not finish stays waiting."""
STATES = ("active", "disabled", "deleted", "removed")


class PlatformWork:
    """The threads of the platform, and their metrics."""

    def __init__(self, settings: Settings, records: PlatformRecords) -> None:
        inbox = Inbox(Path(settings.data_dir))
        self._records = records
        self._applier = Applier(inbox, records, time.time)
        remembered_s = settings.platform.webhook.remembered_s
        self._threads = [
            RepeatingThread("webhooks", self._applier.apply_waiting, APPLY_EVERY_S),
            RepeatingThread("forget", partial(self._applier.forget_old, remembered_s), FORGET_EVERY_S),
        ]
        # Without an address no call is possible.
        if settings.platform.base_url:
            cycle = LifeCycle(records.installations, partial(probe, settings.platform))
            self._threads.append(RepeatingThread("installations", cycle.probe_due, PROBE_EVERY_S))

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all threads."""
        for thread in self._threads:
            thread.stop(STOP_S)

    def report(self, metrics: Metrics) -> None:
        """Set the metrics."""
        for outcome, count in self._applier.outcomes.copy().items():
            metrics.set("webhooks_applied", count, outcome=outcome)
        metrics.set("webhooks_waiting", self._applier.waiting_count)
        records = self._records.installations.all()
        for state in STATES:
            metrics.set(
                "platform_installations", sum(record.state == state for record in records), state=state
            )
        deleted_at_s = [record.deleted_at_s for record in records if record.deleted_at_s is not None]
        left_s = min(deleted_at_s, default=time.time() + DISABLED_S_MAX) - time.time()
        metrics.set("platform_disabled_days_left", max(0.0, left_s / DAY_S))
