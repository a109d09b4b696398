"""What the admin port says about the receiver as a whole.

The receiver is ready while every intake accepts. That the store is away is shown and is no reason to send
traces elsewhere: they are safe in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from receiver.supervisor.child import Child

DECIDING = frozenset({"process", "journal"})
"""The checks of an intake that decide: whether it runs, and whether its journal takes more."""


ALWAYS_TOLD = frozenset({"ends", "writer"})
"""What is told in a few words too, though nothing depends on it: nobody looks further while all is `ok`."""


class Check(msgspec.Struct, frozen=True):
    """One thing that was checked."""

    process: str
    name: str
    reason: str
    """Empty: fine."""
    decides: bool
    """Whether readiness depends on it."""

    @property
    def is_told(self) -> bool:
        """Whether it is worth a line to whoever did not ask for all."""
        return bool(self.reason) and (self.decides or self.name in ALWAYS_TOLD)


class Readiness(msgspec.Struct, frozen=True):
    """All checks, and what follows."""

    ready: bool
    checks: tuple[Check, ...]

    def as_text(self, *, is_verbose: bool) -> str:
        """`ok`, or what is wrong; verbose: every check on its own line."""
        lines = [_line(check) for check in self.checks if is_verbose or check.is_told]
        return "\n".join([*lines, "ok" if self.ready else "not ready"]) + "\n"


def readiness(intakes: Sequence[Child], store: Child, *, is_stopping: bool) -> Readiness:
    """How things stand now."""
    checks = [
        Check("supervisor", "stopping", "the receiver stops" if is_stopping else "", decides=True),
        *(check for intake in intakes for check in _checks(intake, deciding=DECIDING)),
        *_checks(store, deciding=frozenset()),
    ]
    return Readiness(not any(check.decides and check.reason for check in checks), tuple(checks))


def _checks(child: Child, deciding: frozenset[str]) -> list[Check]:
    return [Check(child.name, name, reason, name in deciding) for name, reason in child.health.items()]


def _line(check: Check) -> str:
    mark, reason = ("-", check.reason) if check.reason else ("+", "ok")
    return f"[{mark}] {check.process} {check.name}: {reason}"
