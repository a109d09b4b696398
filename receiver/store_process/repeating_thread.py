"""Repeating thread: runs one step again and again, until the process stops."""

from __future__ import annotations

import threading
from collections.abc import Callable

from receiver.logs import limited


class RepeatingThread:
    """A daemon thread, so that a step that hangs cannot prevent the exit."""

    def __init__(self, name: str, step: Callable[[], None], every_s: float) -> None:
        self._name = name
        self._step = step
        self._every_s = every_s
        self._is_stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Run the next step at once."""
        self._wake.set()

    def stop(self, seconds: float) -> None:
        """Begin no more steps, and wait for the running one at most this long."""
        self._is_stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - the next step may succeed
                limited.error(
                    f"thread:{self._name}", "step of a thread failed; it is tried again", exc_info=error
                )
            self._wake.wait(self._every_s)
            self._wake.clear()
