"""Applier: applies the waiting webhooks of the inbox to the records, each once.

Invariant: a webhook's change is durable before the note about it, and the note before its file is deleted. A
    crash in between repeats the change, which then changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from receiver.errors import place_and_reason
from receiver.logs import limited
from receiver.platform.webhooks.changes import Outcome, Records, apply
from receiver.platform.webhooks.inbox import NO_BODY, Inbox, Note
from receiver.platform.webhooks.webhook import Webhook


class Applier:
    """The webhooks of one inbox, and what became of them."""

    def __init__(self, inbox: Inbox, records: Records, now_s: Callable[[], float]) -> None:
        self._inbox = inbox
        self._records = records
        self._now_s = now_s
        self.outcomes: Counter[Outcome] = Counter()
        self.waiting_count = 0
        """Webhooks that could not be read or applied in the last round."""

    def apply_waiting(self) -> None:
        """Apply all waiting webhooks, oldest first. Raises `OSError` if the directory cannot be read."""
        failed_count = 0
        for webhook in self._inbox.waiting():
            try:
                self.outcomes[self._apply(webhook)] += 1
            # The others may concern records that can be written.
            except OSError as error:
                failed_count += 1
                limited.error(
                    "webhook_apply",
                    "webhook cannot be applied; it is tried again",
                    error=place_and_reason(error),
                )
        self.waiting_count = failed_count + self._inbox.unreadable_count

    def forget_old(self, remembered_s: float) -> None:
        """Forget webhooks that were received longer ago than this, and delete drafts of killed processes."""
        self._inbox.tidy()
        self._inbox.forget(int((self._now_s() - remembered_s) * 1_000))

    def _apply(self, webhook: Webhook) -> Outcome:
        if self._inbox.is_applied(webhook):
            outcome: Outcome = "duplicate"
        else:
            outcome = apply(webhook, self._records)
            self._inbox.note(self._note(webhook, outcome), webhook)
        self._inbox.discard(webhook)
        return outcome

    def _note(self, webhook: Webhook, outcome: Outcome) -> Note:
        return Note(
            id=webhook.id,
            type=webhook.type,
            created_at_ms=webhook.created_at_ms,
            received_at_ms=webhook.received_at_ms,
            applied_at_ms=int(self._now_s() * 1_000),
            outcome=outcome,
            body=webhook.body if outcome == "unknown" else NO_BODY,
        )
