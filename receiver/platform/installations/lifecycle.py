"""Life cycle of installations: probes detect that the platform disabled, restored or deleted one.

    active ──▶ disabled ──▶ deleted
       ◀─────────

The platform answers every call of a disabled installation with one error, so a probe is any call that changes
nothing. An active installation is probed too, because the receiver may otherwise make no call for days, and
at once when another call gets that error.

Invariant: an installation ends only when the platform has had the whole time for a transfer of ownership, and
refuses the token. Until then an outage, a wrong clock or an unknown answer changes nothing.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from receiver.backoff import backoff_s
from receiver.errors import OperatorError, place_and_reason
from receiver.logs import limited
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.errors import (
    ConfigurationDisabled,
    Forbidden,
    InvalidRequest,
    NotAuthorized,
    NotFound,
    PlatformError,
)
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.records import Installation, State
from receiver.settings import Platform

ACTIVE_EVERY_S = 3_600.0
"""Interval between two probes of an active installation."""
DISABLED_FIRST_S = 60.0
"""Interval after the first probe of a disabled installation. It doubles after each probe."""
DISABLED_S_MAX = 6 * 3_600.0
"""Longest time between two probes of an installation that is not active."""
JITTER = 0.1
"""Jitter as a fraction of the interval, so that receivers do not call together."""

Verdict = Literal["works", "disabled", "forbidden", "unauthorized", "no answer"]
"""Result of a probe. `works`: any answer that the platform gives only to a valid token."""
Probe = Callable[[Installation, str], Verdict]
"""Makes a call with the token of an installation. Blocks."""

_DEPLOYMENT: Final = "dpl_trace-drain-probe"
"""Deployment that does not exist: the platform answers 404 to a token that works."""
_VERDICT_OF: Final[tuple[tuple[type[PlatformError], Verdict], ...]] = (
    # Before its base class.
    (ConfigurationDisabled, "disabled"),
    (Forbidden, "forbidden"),
    (NotAuthorized, "unauthorized"),
    (NotFound, "works"),
    (InvalidRequest, "works"),
)


class _Due(NamedTuple):
    at_s: float
    """Monotonic time of the next probe."""
    intervals_s: Iterator[float]
    """Intervals between the further probes, as long as the state does not change."""


def next_state(record: Installation, verdict: Verdict, now_s: float) -> State:
    """Return the state of an installation after a probe."""
    if verdict == "disabled":
        return "disabled"
    if record.state != "disabled" or verdict == "no answer":
        return record.state
    is_over = record.deleted_at_s is not None and now_s >= record.deleted_at_s
    if verdict == "works" or (verdict == "forbidden" and not is_over):
        # A call that lacks only a scope shows that the configuration is not disabled any more.
        return "active"
    return "deleted" if is_over else "disabled"


class LifeCycle:
    """Probes the installations that have a token, each in its own interval."""

    def __init__(
        self,
        installations: Installations,
        probe: Probe,
        *,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
        random_share: Callable[[], float] = random.random,
    ) -> None:
        self._installations = installations
        self._probe = probe
        self._now_s = now_s
        self._monotonic_s = monotonic_s
        self._random_share = random_share
        self._due: dict[str, _Due] = {}
        self._has_request = threading.Event()

    def request_probe(self) -> None:
        """Make the next `probe_due` probe all active installations. Another thread may call this."""
        self._has_request.set()

    def probe_due(self) -> None:
        """Probe every installation whose interval has passed, and record its new state."""
        is_requested = self._has_request.is_set()
        self._has_request.clear()
        known = {record.id: record for record in self._installations.all() if not record.is_ended}
        # An installation that has ended is never probed again.
        self._due = {key: due for key, due in self._due.items() if key in known}
        for record in known.values():
            due = self._due.get(record.id)
            is_early = is_requested and record.state == "active"
            if is_early or due is None or due.at_s <= self._monotonic_s():
                state = self._probed(record)
                self._due[record.id] = self._next(record.state, state, due)
                # The platform may not have answered the probe.
                if is_early and state == "active":
                    due = self._due[record.id]
                    self._due[record.id] = due._replace(at_s=self._monotonic_s() + DISABLED_FIRST_S)

    def _probed(self, record: Installation) -> State:
        """Probe an installation. Returns its state afterwards."""
        try:
            token = self._installations.token(record.id)
            state = next_state(record, self._probe(record, token), self._now_s()) if token else record.state
            if state != record.state and self._installations.set_state(record.id, state, self._now_s()):
                _log_change(record, state)
        # The page reports a token that cannot be read. Writing the record is tried again.
        except (OSError, OperatorError) as error:
            text = place_and_reason(error) if isinstance(error, OSError) else str(error)
            limited.warning("installation_probe", "installation cannot be probed", error=text)
            return record.state
        return state

    def _next(self, before: State, state: State, due: _Due | None) -> _Due:
        if state == "active":
            intervals_s = self._intervals_s(ACTIVE_EVERY_S, ACTIVE_EVERY_S)
        elif due is None or state != before:
            intervals_s = self._intervals_s(DISABLED_FIRST_S, DISABLED_S_MAX)
        else:
            intervals_s = due.intervals_s
        return _Due(self._monotonic_s() + next(intervals_s), intervals_s)

    def _intervals_s(self, first_s: float, longest_s: float) -> Iterator[float]:
        return backoff_s(first_s, longest_s, jitter=JITTER, random_share=self._random_share)


def _log_change(record: Installation, state: State) -> None:
    name = record.id
    if state == "disabled":
        limited.error(
            f"installation:{name}",
            "the platform has disabled an installation; its calls stop, spans are still received",
            name=name,
            action="an owner of the team transfers the integration to a member within 30 days",
        )
    elif state == "active":
        limited.warning(f"installation:{name}", "an installation is active again", name=name)
    else:
        limited.error(
            f"installation:{name}",
            "the platform has deleted an installation; its token is destroyed, spans are kept",
            name=name,
            action="install the integration again on the page /platform",
        )


def probe(platform: Platform, installation: Installation, token: str) -> Verdict:
    """Call the platform with the token of an installation. Blocks."""
    return asyncio.run(_probe(platform, installation, token))


async def _probe(platform: Platform, installation: Installation, token: str) -> Verdict:
    try:
        async with PlatformClient(
            platform.base_url, token, team=installation.team_id, timeout_s=platform.timeout_s
        ) as client:
            path = ("v3", "deployments", _DEPLOYMENT, "events")
            await client.get_bytes(path, {"limit": "1"})
    except PlatformError as error:
        return next((verdict for kind, verdict in _VERDICT_OF if isinstance(error, kind)), "no answer")
    return "works"
