"""Readiness of the receiver as a whole, served by the admin port.

The receiver is ready while every intake accepts deliveries. An unavailable store is reported but does not
affect readiness: the traces are safe in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from receiver.supervisor.child import Child

DECIDING = frozenset({"process", "journal"})
"""Checks of an intake that affect readiness: the process runs, and its journal accepts records."""


ALWAYS_REPORTED = frozenset({"ends", "reports", "writer"})
"""Checks that the short text shows although they do not affect readiness, so that operators notice them."""


class Check(msgspec.Struct, frozen=True):
    process: str
    name: str
    reason: str
    """Description of the problem; empty if there is none."""
    decides: bool
    """Whether the check affects readiness."""

    @property
    def is_reported(self) -> bool:
        return bool(self.reason) and (self.decides or self.name in ALWAYS_REPORTED)


class Readiness(msgspec.Struct, frozen=True):
    ready: bool
    checks: tuple[Check, ...]

    def as_text(self, *, is_verbose: bool) -> str:
        """Return `ok` or the problems; if verbose, every check on its own line."""
        lines = [_line(check) for check in self.checks if is_verbose or check.is_reported]
        return "\n".join([*lines, "ok" if self.ready else "not ready"]) + "\n"


def readiness(intakes: Sequence[Child], store: Child, *, is_stopping: bool) -> Readiness:
    checks = [
        Check("supervisor", "running", "the receiver is stopping" if is_stopping else "", decides=True),
        *(check for intake in intakes for check in _checks(intake, deciding=DECIDING)),
        # A store that is down must not take the receiver out of a load balancer: the journal accepts.
        *_checks(store, deciding=frozenset()),
    ]
    return Readiness(not any(check.decides and check.reason for check in checks), tuple(checks))


def _checks(child: Child, deciding: frozenset[str]) -> list[Check]:
    return [Check(child.name, name, reason, name in deciding) for name, reason in child.health.items()]


def _line(check: Check) -> str:
    mark, reason = ("-", check.reason) if check.reason else ("+", "ok")
    return f"[{mark}] {check.process} {check.name}: {reason}"
