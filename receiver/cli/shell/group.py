"""Command groups: show complete help texts, suggest a command for a mistyped name, show examples last."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

import click

EXAMPLE_CHARS_MAX = 76
"""Length of a line of an example, which click indents by four, so that it fits 80 columns."""
INDENTATION = "    "
"""Indentation of the later lines of an example."""
HELP_CHARS_MAX = 1_000
"""Limit above every help text, because click truncates the first sentence at 45 characters by default."""


class CommandGroup(click.Group):
    """A group of commands, which lists each command with the whole first sentence of its help."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the name that was probably meant."""
        names = self.list_commands(ctx)
        # Completion parses incomplete names, and must not fail.
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            close = get_close_matches(args[0], names, n=1)
            meant = f"did you mean '{close[0]}'?" if close else f"expected {', '.join(names)}"
            ctx.fail(f"no such command '{args[0]}'; {meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(self.listed(ctx))

    def listed(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return the name and description of each command."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, command.get_short_help_str(HELP_CHARS_MAX)) for name, command in commands if command]


def examples(*lines: str) -> str:
    """Return the epilog of a command with its examples, marked so that click does not wrap them."""
    return "\b\nExamples:\n" + "\n".join(f"  {part}" for line in lines for part in _parts(line))


def _parts(line: str) -> Iterator[str]:
    """Yield the lines of an example: the comment of a long one above it, then the parts of its command."""
    command, mark, comment = line.partition(" # ")
    if mark and len(line) > EXAMPLE_CHARS_MAX:
        yield f"# {comment}"
        line = command.rstrip()
    while len(line) > EXAMPLE_CHARS_MAX and (end := _end_of_part(line)) > len(INDENTATION):
        yield f"{line[:end]} \\"
        line = f"{INDENTATION}{line[end + 1 :]}"
    yield line


def _end_of_part(line: str) -> int:
    """Return the index of the last space at which an example can be broken, with room for a backslash."""
    head = line[: EXAMPLE_CHARS_MAX - 1]
    return max(head.rfind(separator) for separator in (" --", " | ", " '"))
