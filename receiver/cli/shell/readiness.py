"""Check of the store process before a query: reads its state from the admin port of a running receiver.

The supervisor holds the API's listening socket, so a query to a store process that is not running would wait
in the backlog instead of failing.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread, Timer

import click
import msgspec

from receiver.errors import CommandFailed
from receiver.printable import harmless_text
from receiver.supervisor.health import Readiness
from receiver.supervisor.state import ReceiverState

ADMIN_TIMEOUT_S = 3.0
STORE_START_S = 15.0
"""Maximum time that a command waits for a store process that is starting."""
POLL_S = 0.25
SLOW_S = 5.0
"""Time after which a command prints that it is still waiting for a response."""


def require_store_process(
    state: ReceiverState,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the store process runs. Raises `CommandFailed` with the report of `/readyz` if it does not.

    Does not wait for a process that has ended several times recently. If the admin port does not respond,
    returns at once, and the query itself reports the problem.
    """
    deadline_s = now() + STORE_START_S
    while True:
        reasons = _store_reasons(state)
        if not reasons.get("process"):
            return
        # A process that ends repeatedly does not become ready by waiting.
        if reasons.get("ends") or now() >= deadline_s:
            raise CommandFailed(_message(state, reasons))
        sleep(POLL_S)


@contextmanager
def note_when_slow(state: ReceiverState, *, after_s: float = SLOW_S) -> Iterator[Thread]:
    """Print the report of `/readyz` on the store process if the block takes longer than `after_s`."""
    timer = Timer(after_s, _note, [state])
    # The command must be able to exit while the timer waits for the admin port.
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def _note(state: ReceiverState) -> None:
    reasons = _store_reasons(state)
    reported = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)
    click.echo(
        harmless_text(f"no answer yet, still waiting; /readyz reports {reported or 'nothing wrong'}"),
        err=True,
    )


def _store_reasons(state: ReceiverState) -> dict[str, str]:
    """Return the problems of the store process by the name of the check; empty without a response."""
    readiness = _readiness(state.urls.get("admin", ""))
    checks = readiness.checks if readiness else ()
    return {check.name: check.reason for check in checks if check.process == "store"}


def _readiness(admin_url: str) -> Readiness | None:
    """Request `/readyz`. Returns None without a response."""
    if not admin_url:
        return None
    request = urllib.request.Request(f"{admin_url}/readyz", headers={"Accept": "application/json"})  # noqa: S310 - ours
    try:
        with urllib.request.urlopen(request, timeout=ADMIN_TIMEOUT_S) as response:  # noqa: S310 - as above
            body = response.read()
    # A receiver that is not ready responds with 503 and the same report.
    except urllib.error.HTTPError as unready:
        with unready, suppress(OSError):
            body = unready.read()
    except OSError:
        return None
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(body, type=Readiness)
    return None


def _message(state: ReceiverState, reasons: dict[str, str]) -> str:
    """Describe which process is down, why, and where an operator finds more."""
    ends = f" ({reasons['ends']})" if reasons.get("ends") else ""
    return (
        f"the receiver runs (process {state.pids.supervisor}), but its store process is "
        f"{reasons['process']}{ends}; see its log; {state.urls['admin']}/readyz?verbose has its state"
    )
