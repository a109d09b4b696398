"""Commands of the test kit, a distribution of its own: load harness and emulator of the hosting platform."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Final, cast

import click

from receiver.errors import CommandFailed

TEST_KIT: Final = frozenset({"load"})
"""Commands of `trace-drain` that the test kit provides."""
_GROUP: Final = "trace_drain.commands"


def test_kit_command(name: str) -> click.Command:
    """Return a command of the test kit; without the test kit, a command that prints how to install it."""
    # Resolved by name, because the import takes as long as the start of an intake.
    entry_points = resolve_name("importlib.metadata:entry_points")
    for entry_point in entry_points(group=_GROUP, name=name):
        return cast("click.Command", entry_point.load())
    return _missing(name)


def _missing(name: str) -> click.Command:
    def fail() -> None:
        raise CommandFailed(
            f"the command '{name}' is part of the test kit, which is not installed; "
            "install it with `pip install trace-drain-testing`, or run `make setup` in the repository"
        )

    return click.Command(
        name,
        callback=fail,
        help="Not installed: `pip install trace-drain-testing` provides it.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )
