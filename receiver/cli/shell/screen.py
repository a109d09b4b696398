"""Full screen of a terminal: the alternate screen, keys without Enter, and the size of the window.

Invariant: the terminal is restored at the end of the block, also after an exception, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from receiver.cli.shell.text_width import cut_to_width
from receiver.errors import OperatorError

_ENTER = "\x1b[?1049h\x1b[?25l"
"""Switches to the alternate screen and hides the cursor."""
_LEAVE = "\x1b[?25h\x1b[?1049l"
_TOP_LEFT, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_RESIZE_CHECK_S = 0.2


@contextmanager
def full_screen() -> Iterator[Screen]:
    """Yield the screen, for the duration of the block."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise OperatorError("this command fills the screen; expected a terminal as standard input and output")
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    signals = (signal.SIGTERM, signal.SIGHUP)
    # The default action would end the process without the code below, and leave the terminal unusable.
    handlers = [signal.signal(number, _exit) for number in signals]
    try:
        # Not raw mode, so that Ctrl-C still interrupts.
        tty.setcbreak(keyboard)
        click.echo(_ENTER, nl=False)
        yield Screen(keyboard)
    finally:
        click.echo(_LEAVE, nl=False)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        for number, handler in zip(signals, handlers, strict=True):
            signal.signal(number, handler)


class Screen:
    """Contents of the screen, and the pressed keys."""

    def __init__(self, keyboard: int) -> None:
        self._keyboard = keyboard
        self.size = os.get_terminal_size()

    def show(self, lines: Sequence[str]) -> None:
        """Replace the contents; omit lines that do not fit. Lines must not have control characters."""
        self.size = os.get_terminal_size()
        columns, height = self.size
        visible = [f"{cut_to_width(line, columns)}{_END_OF_LINE}" for line in lines[:height]]
        # Overwrites line by line, because clearing the screen first would flicker.
        click.echo(_TOP_LEFT + "\r\n".join(visible) + _END_OF_SCREEN, nl=False)

    def key(self, timeout_s: float) -> str:
        """Wait for a key and return it; empty after the timeout, or when the window is resized."""
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0 and self.size == os.get_terminal_size():
            # A limited wait instead of a handler of SIGWINCH: a new size is noticed at the next check.
            if select.select([self._keyboard], [], [], min(left_s, _RESIZE_CHECK_S))[0]:
                # An empty read means that the terminal was closed.
                return os.read(self._keyboard, 1).decode(errors="replace") or "q"
        return ""


def _exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
