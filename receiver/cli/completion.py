"""`trace-drain completion SHELL`: a completion script for bash, zsh or fish."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from receiver.cli.group import examples
from receiver.errors import OperatorError

PROGRAM = "trace-drain"
VARIABLE = "_TRACE_DRAIN_COMPLETE"
"""The environment variable by which the shell's script asks click for completions of `PROGRAM`."""


@click.command(
    epilog=examples(
        'eval "$(trace-drain completion bash)"                          # in ~/.bashrc',
        'eval "$(trace-drain completion zsh)"                           # in ~/.zshrc, after compinit',
        "trace-drain completion fish > ~/.config/fish/completions/trace-drain.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    The command `trace-drain` must be on PATH.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise OperatorError(f"click has no completion for {shell}; expected bash, zsh or fish")
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
