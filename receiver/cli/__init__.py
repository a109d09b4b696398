"""The command line, one file per command; no logic.

A command is a click command named as its module. A module is loaded when its command is used:
`journal verify` must work where the engine is broken, and `version` must not wait for it.
"""

from __future__ import annotations

import errno
import importlib
import os

import click
from click.shell_completion import CompletionItem

from receiver import __version__
from receiver.cli.group import Group, examples
from receiver.errors import CommandFailed, OperatorError, place_and_reason
from receiver.logs import harmless_text, silence_libraries

VERBS = {
    "completion": "Print the script that completes commands and options in a shell.",
    "config": "Show or check the configuration.",
    "dead": "List, show, replay and drop dead letters.",
    "journal": "List, verify and inspect the segments that are on disk and not stored yet.",
    "ledger": "Print what became of every span received, and verify it against the table.",
    "load": "Send load to a receiver, measure it, and verify what it stored.",
    "sampling": "Explain a sampling decision.",
    "schema": "Print, compare and apply the schema of the store.",
    "serve": "Run the receiver.",
    "spans": "Search spans.",
    "trace": "Print one trace.",
    "version": "Print the versions of the receiver and of what it runs on.",
}
"""Command → what it does. The module `receiver.cli.NAME` holds the command `NAME`."""
EXIT_INTERRUPTED = 130
"""As shells report a command that Ctrl-C ended."""
EPILOG = examples(
    "trace-drain serve --data data                        # run a receiver, which prints how to use it",
    "trace-drain trace 5b8efff798038103d269b633813fc60c   # one trace as a tree",
    "trace-drain spans --since 15m --project prj_1        # the newest spans",
    "trace-drain COMMAND --help                           # options and examples of a command",
)


class Commands(Group):
    """Loads a command when it is used; prints an operator's mistake in one message, without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Load one command."""
        if cmd_name not in VERBS:
            return None
        found = getattr(importlib.import_module(f"receiver.cli.{cmd_name}"), cmd_name)
        return found if isinstance(found, click.Command) else None

    def listed(self, ctx: click.Context) -> list[tuple[str, str]]:  # noqa: ARG002 - as above
        """Return the name of each command and what it does, without loading any."""
        return sorted(VERBS.items())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without loading any."""
        names = [
            CompletionItem(name, help=text) for name, text in self.listed(ctx) if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. `docs/operations.md` has the table of exit codes."""
        _fill_closed_descriptors()
        silence_libraries()
        try:
            return super().invoke(ctx)
        except OperatorError as reason:
            _print_error(str(reason))
            ctx.exit(reason.exit_code)
        except OSError as reason:
            if reason.errno == errno.EPIPE:
                raise
            _print_error(f"a file cannot be used: {place_and_reason(reason)}")
            ctx.exit(CommandFailed.exit_code)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)


def _fill_closed_descriptors() -> None:
    """Open /dev/null for each closed standard stream, so that no other file gets its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the system's signature


def _print_error(message: str) -> None:
    """Print on standard error; control characters that the message quotes are escaped."""
    for place, line in enumerate(message.splitlines()):
        click.echo(f"{'' if place else 'trace-drain: '}{harmless_text(line)}", err=True)


@click.command(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trace-drain")
def main() -> None:
    """OTLP traces in over HTTPS, on disk before the 200, in ClickHouse exactly once."""
