"""Step of a doctor's run: what was checked, the cause if it failed, and what to do about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

State = Literal["ok", "warning", "failed", "skipped"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one step, as `--format json` prints it."""

    step: str
    state: State = "ok"
    ms: float = 0.0
    text: str = ""
    """What was found; the cause of a failure."""
    fix: str = ""
    """What to do; empty unless the state is `warning` or `failed`."""


class StepFailed(Exception):  # noqa: N818 - a verdict, not an accident
    """A step failed, so the later ones cannot be checked."""

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(cause)
        self.fix = fix


class StepWarning(StepFailed):
    """A step found something that an operator should look at. The later ones are checked."""


Check = tuple[str, Callable[[], str]]
"""Name of a step, and the function that returns what it found or raises `StepFailed`."""


def run(checks: Iterable[Check]) -> Iterator[Step]:
    """Yield the result of each check. After the first failure the others are skipped."""
    failed = ""
    for name, check in checks:
        if failed:
            yield Step(step=name, state="skipped", text=f"depends on the step {failed}")
            continue
        began_s = time.monotonic()
        state: State = "ok"
        try:
            text, fix = check(), ""
        except StepFailed as error:
            text, fix = str(error), error.fix
            state = "warning" if isinstance(error, StepWarning) else "failed"
            failed = name if state == "failed" else ""
        ms = round((time.monotonic() - began_s) * 1_000, 1)
        yield Step(step=name, state=state, ms=ms, text=text, fix=fix)
