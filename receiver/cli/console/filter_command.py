"""Commands whose arguments are the words of a filter, which may begin with a dash: `-http.route=/x`."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import click

from receiver.cli.console.filter_completion import complete_filter


class FilterCommand(click.Command):
    """A command with the argument of `filter_words`."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 - click's
        settings["context_settings"] = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
        super().__init__(*arguments, **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. `-h` prints the help."""
        # `-h` is not an option for click, because `-http.route=x` would print the help.
        return super().parse_args(ctx, ["--help" if word == "-h" else word for word in args])


def filter_words(*, is_required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator that adds the argument `words`."""
    return click.argument(
        "words",
        metavar="FILTER" if is_required else "[FILTER]",
        nargs=-1,
        required=is_required,
        type=click.UNPROCESSED,
        shell_complete=complete_filter,
        callback=_without_options,
    )


def _without_options(
    ctx: click.Context, _parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the words. Raises `NoSuchOption` for a mistyped option, which click takes for a word."""
    for word in words:
        # A single dash negates a condition, so only two dashes are certainly not a filter.
        if word.startswith("--") and not ctx.resilient_parsing:
            name = word.partition("=")[0]
            known = [option for parameter in ctx.command.get_params(ctx) for option in parameter.opts]
            raise click.NoSuchOption(name, possibilities=get_close_matches(name, known, n=1), ctx=ctx)
    return words
