"""The command line, one file per command.

Each module holds the click command of the same name, in the folder of its area. It is loaded only when that
command is used:
`journal verify` must work where the engine is broken, and `version` must not wait for it.
"""

from __future__ import annotations

import errno
import os
from pkgutil import resolve_name
from typing import Final, cast

import click
from click.shell_completion import CompletionItem

from receiver import __version__
from receiver.cli.shell import shells as _shells  # noqa: F401 - registers the shells
from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.test_kit import TEST_KIT, test_kit_command
from receiver.console.queries.sentences import SENTENCES
from receiver.errors import CommandFailed, OperatorError, Refused, place_and_reason
from receiver.printable import harmless_text

VERBS = {
    **SENTENCES,
    "completion": "Print the script that completes commands, options and stored names in a shell.",
    "config": "Show or check the configuration.",
    "dead": "List, show, replay and drop dead letters.",
    "doctor": "Find out why spans of a drain do not arrive, and check this machine.",
    "explain": "Explain a trace by a language model, through the gateway of the platform.",
    "export": "Write all spans that match a filter into a file.",
    "forget": "Delete the stored spans of a project or a trace.",
    "journal": "List, verify and inspect the segments that are on disk and not stored yet.",
    "ledger": "Print the number of received spans by outcome, and compare it with the table.",
    "load": "Send load to a receiver, measure it, and verify what it stored.",
    "platform": "Call the hosting platform (events, microfrontends, language models), or emulate it.",
    "rollup": "Print the state of the rollups, or build them again.",
    "sampling": "Explain a sampling decision.",
    "schema": "Print, compare and apply the schema of the store.",
    "serve": "Run the receiver.",
    "sql": "Run a SELECT statement, read-only.",
    "store": "Back up, restore or move the embedded store.",
    "top": "Show rate, errors and durations of services, full screen and live.",
    "trace": "Print one trace.",
    "views": "List, export and import the saved views of the pages.",
    "version": "Print the versions of the receiver and its dependencies.",
}
"""Command → its description."""
QUERY_COMMANDS: Final = frozenset(
    {"attributes", "deployment-events", "deployments", "operations", "service-map", "services"}
)
"""Commands that `receiver.cli.console.questions` builds; the others have a module of their name."""
FOLDERS: Final = {
    "receiver": (
        *("config", "dead", "doctor", "forget", "journal", "ledger"),
        *("sampling", "schema", "serve", "store", "version"),
    ),
    "platform": ("explain", "platform"),
    "shell": ("completion",),
}
"""Folder → its commands. Every other command is in the folder `console`."""
FOLDER_OF: Final = {name: folder for folder, names in FOLDERS.items() for name in names}
EXIT_INTERRUPTED = 130
"""Exit code that shells report for a command that Ctrl-C ended."""
EPILOG = examples(
    "trace-drain serve --data data                        # run a receiver, which prints how to use it",
    "trace-drain trace 5b8efff798038103d269b633813fc60c   # one trace as a tree",
    "trace-drain search 'service=web status=error'        # the traces that have such a span",
    "trace-drain spans --since 15m --project prj_1        # the newest spans",
    "trace-drain COMMAND --help                           # options and examples of a command",
)


class Commands(CommandGroup):
    """The commands, each imported on use. Prints failures without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Load one command."""
        if cmd_name not in VERBS:
            return None
        # Resolved by name, because an import at the top would load the engine for every command.
        if cmd_name in TEST_KIT:
            return test_kit_command(cmd_name)
        if cmd_name in QUERY_COMMANDS:
            command = resolve_name("receiver.cli.console.questions:command_of")(cmd_name)
        else:
            folder = FOLDER_OF.get(cmd_name, "console")
            command = resolve_name(f"receiver.cli.{folder}.{cmd_name}:{cmd_name}")
        return cast("click.Command", command)

    def listed(self, ctx: click.Context) -> list[tuple[str, str]]:  # noqa: ARG002 - as above
        """Return the name and description of each command, without loading any command."""
        return sorted(VERBS.items())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without loading any command."""
        names = [
            CompletionItem(name, help=text) for name, text in self.listed(ctx) if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse text with surrogates, which other bytes than UTF-8 become and nothing can encode."""
        if any("\ud800" <= character <= "\udfff" for arg in args for character in arg):
            raise click.UsageError("an argument has bytes that are not UTF-8; expected UTF-8", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. `docs/operations.md` has the table of exit codes."""
        # Before anything opens a file, which would get the free number.
        _fill_closed_descriptors()
        try:
            return super().invoke(ctx)
        except OperatorError as error:
            _print_error(str(error))
            ctx.exit(error.exit_code)
        # A parameter that a query refuses was wrong on the command line.
        except Refused as error:
            _print_error(str(error))
            ctx.exit(OperatorError.exit_code)
        except OSError as error:
            # `trace-drain … | head` closes the pipe; click then exits silently.
            if error.errno == errno.EPIPE:
                raise
            _print_error(f"a file cannot be used: {place_and_reason(error)}")
            ctx.exit(CommandFailed.exit_code)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)


def _fill_closed_descriptors() -> None:
    """Open /dev/null for each closed standard stream, so that no other file gets its descriptor number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the system's signature


def _print_error(message: str) -> None:
    """Print on standard error. Escapes control characters, which a message may quote from input."""
    for index, line in enumerate(message.splitlines()):
        click.echo(f"{'' if index else 'trace-drain: '}{harmless_text(line)}", err=True)


@click.command(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trace-drain")
def main() -> None:
    """Receive OTLP traces, sync them to disk before answering, and store them in ClickHouse exactly once."""
