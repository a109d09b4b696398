"""Checks of the retentions: of all spans, and of those of projects and drains."""

from __future__ import annotations

from collections.abc import Iterator

from receiver.settings import Settings

RULES_MAX = 32
"""Maximum number of retention rules: a statement lists all of them, in hexadecimal digits."""


def retention_problems(settings: Settings) -> Iterator[str]:
    """Require a retention that is longer than the margin of late spans, and rules that are shorter."""
    store = settings.store
    days, margin_days = store.retention_days, store.late_margin_days
    if 0 < days <= margin_days:
        yield (
            f"store.retention_days is {days}; expected more than store.late_margin_days = {margin_days}, "
            "or 0 to keep spans forever"
        )
    if store.retention_rule and store.url != "embedded":
        yield "store.retention_rule is set and the store is a server; expected it for the embedded store only"
    if len(store.retention_rule) > RULES_MAX:
        yield f"store.retention_rule has {len(store.retention_rule)} entries; expected at most {RULES_MAX}"
    known = {drain.name for drain in settings.drain}
    for index, rule in enumerate(store.retention_rule):
        key = f"store.retention_rule[{index}]"
        # Every span would have this retention.
        if rule.project is None and rule.drain is None:
            yield f"{key} has neither project nor drain; expected one of them, or store.retention_days"
        if rule.drain is not None and rule.drain not in known:
            yield f"{key}.drain is '{rule.drain}'; expected the name of a drain"
        if 0 < days <= rule.days:
            yield f"{key}.days is {rule.days}; expected fewer than store.retention_days = {days}"
