"""The verbs an operator types, one file each; no logic.

A verb is a click command named as its module. Modules are loaded when their verb is used: `journal verify`
must work at three in the morning where the engine is broken, and `version` must not wait for it.
"""

from __future__ import annotations

import errno
import importlib
import os
from difflib import get_close_matches

import click

from receiver import __version__
from receiver.errors import OperatorError, place_and_reason
from receiver.logs import harmless_text, hush_chatters

VERBS = {
    "config": "Show or check the configuration.",
    "dead": "List, show, replay and drop what was set aside.",
    "journal": "List, verify and inspect what is promised and not yet stored.",
    "ledger": "Print what became of every span received, and prove it.",
    "load": "Load a receiver, measure it, and check what it kept.",
    "sampling": "Explain a sampling decision.",
    "schema": "Print, compare and apply the schema.",
    "serve": "Run the receiver.",
    "spans": "Search spans.",
    "trace": "Print one trace.",
    "version": "Print what runs.",
}
"""Verb → what it does. The module `receiver.cli.VERB` holds the command `VERB`."""


class Verbs(click.Group):
    """Loads a verb when it is used; tells what an operator did wrong in one message, without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All verbs."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """The command of one verb."""
        if cmd_name not in VERBS:
            return None
        found = getattr(importlib.import_module(f"receiver.cli.{cmd_name}"), cmd_name)
        return found if isinstance(found, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that was meant, or a suggestion."""
        close = get_close_matches(args[0], VERBS, n=1)
        if args[0] not in VERBS and close:
            ctx.fail(f"no such verb '{args[0]}'; did you mean '{close[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Help without loading everything."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(VERBS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb."""
        _fill_closed_descriptors()
        hush_chatters()
        try:
            return super().invoke(ctx)
        except OperatorError as reason:
            _tell(str(reason))
            ctx.exit(reason.exit_code)
        except OSError as reason:
            if reason.errno == errno.EPIPE:
                raise
            _tell(f"a file cannot be used: {place_and_reason(reason)}")
            ctx.exit(OperatorError.exit_code)


def _fill_closed_descriptors() -> None:
    """Some of the first three may be closed; nothing else may take their place, in a child neither.

    What is opened gets the lowest number that is free.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the system's signature


def _tell(message: str) -> None:
    """On standard error; what it quotes moves no cursor."""
    for place, line in enumerate(message.splitlines()):
        click.echo(f"{'' if place else 'trace-drain: '}{harmless_text(line)}", err=True)


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trace-drain")
def main() -> None:
    """OTLP traces in over HTTPS, on disk before the 200, in ClickHouse exactly once."""
