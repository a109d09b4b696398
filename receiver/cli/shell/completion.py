"""`trace-drain completion SHELL`: a completion script for bash, zsh or fish."""

from __future__ import annotations

from typing import Final

import click

from receiver.cli.shell.group import examples
from receiver.cli.shell.shells import Bash, Fish, Zsh

PROGRAM = "trace-drain"
VARIABLE = "_TRACE_DRAIN_COMPLETE"
"""Environment variable that makes click print completions of `PROGRAM` for the script of a shell."""


SHELLS: Final = {kind.name: kind for kind in (Bash, Zsh, Fish)}


@click.command(
    epilog=examples(
        'eval "$(trace-drain completion bash)"                          # in ~/.bashrc',
        'eval "$(trace-drain completion zsh)"                           # in ~/.zshrc, after compinit',
        "trace-drain completion fish > ~/.config/fish/completions/trace-drain.fish",
    )
)
@click.argument("shell", type=click.Choice([*SHELLS]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and stored names in a shell.

    Names come from the receiver that runs on the data directory.
    """
    click.echo(SHELLS[shell](ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
