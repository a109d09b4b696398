"""Asks the admin port of a running receiver whether its store process can answer a question.

The supervisor holds the API's listening socket, so a question to a store process that is not running would
wait in the backlog instead of failing.
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
from receiver.logs import harmless_text
from receiver.supervisor.data_dir import State
from receiver.supervisor.health import Readiness

ADMIN_TIMEOUT_S = 3.0
STORE_START_S = 15.0
"""How long a store process that is starting is waited for."""
POLL_S = 0.25
SLOW_S = 5.0
"""After this a command that waits for an answer says so."""


def require_store_process(
    state: State, *, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Return once the store process runs; raise `CommandFailed` with what `/readyz` reports if it does not.

    A process that ended several times lately is not waited for. Without an answer of the admin port nothing
    is known, and the question is sent.
    """
    deadline_s = now() + STORE_START_S
    while True:
        reasons = _store_reasons(state)
        if not reasons.get("process"):
            return
        if reasons.get("ends") or now() >= deadline_s:
            raise CommandFailed(_message(state, reasons))
        sleep(POLL_S)


@contextmanager
def note_when_slow(state: State, *, after_s: float = SLOW_S) -> Iterator[Thread]:
    """Print what `/readyz` reports of the store process if the block takes longer than `after_s`."""
    timer = Timer(after_s, _note, [state])
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def _note(state: State) -> None:
    reasons = _store_reasons(state)
    reported = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)
    click.echo(
        harmless_text(f"no answer yet, still waiting; /readyz reports {reported or 'nothing wrong'}"),
        err=True,
    )


def _store_reasons(state: State) -> dict[str, str]:
    """Return what is wrong with the store process, by the name of the check; empty: there was no answer."""
    found = _readiness(state.urls.get("admin", ""))
    return {check.name: check.reason for check in found.checks if check.process == "store"} if found else {}


def _readiness(admin_url: str) -> Readiness | None:
    """Ask `/readyz`. None: there was no answer."""
    if not admin_url:
        return None
    request = urllib.request.Request(f"{admin_url}/readyz", headers={"Accept": "application/json"})  # noqa: S310 - ours
    try:
        with urllib.request.urlopen(request, timeout=ADMIN_TIMEOUT_S) as answer:  # noqa: S310 - as above
            body = answer.read()
    except urllib.error.HTTPError as unready:
        with unready, suppress(OSError):
            body = unready.read()
    except OSError:
        return None
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(body, type=Readiness)
    return None


def _message(state: State, reasons: dict[str, str]) -> str:
    """Say which process is down and why, and where to look."""
    ends = f" ({reasons['ends']})" if reasons.get("ends") else ""
    return (
        f"the receiver runs (process {state.pids.supervisor}), but its store process is "
        f"{reasons['process']}{ends}; its log says why; {state.urls['admin']}/readyz?verbose has its state"
    )
