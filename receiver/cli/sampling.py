"""`trace-drain sampling explain`."""

from __future__ import annotations

import json
from typing import Literal

import click

from receiver import transcode
from receiver.errors import OperatorError


@click.group()
def sampling() -> None:
    """Explain a sampling decision."""


@sampling.command()
@click.argument("trace_id", metavar="TRACE_ID")
@click.option(
    "--mode",
    type=click.Choice(["equalizing", "proportional", "hash_seed"]),
    default="equalizing",
    show_default=True,
    help="How the decision is made.",
)
@click.option("--rate", type=click.FloatRange(0, 1), metavar="R", help="What is kept, 0 to 1. [1]")
@click.option("--percent", type=click.FloatRange(0, 100), metavar="P", help="The same in percent.")
@click.option("--seed", type=click.IntRange(0, 0xFFFF_FFFF), default=0, metavar="S", help="For hash_seed.")
@click.option("--tracestate", default="", metavar="T", help="The span's trace state, as received.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."
)
def explain(  # noqa: PLR0913 - one parameter an option
    trace_id: str,
    *,
    mode: str,
    rate: float | None,
    percent: float | None,
    seed: int,
    tracestate: str,
    form: Literal["text", "json"],
) -> None:
    """Say whether spans of TRACE_ID are kept, with which weight and threshold, and why."""
    if rate is not None and percent is not None:
        raise OperatorError("--rate and --percent are both given; expected one")
    if not tracestate.isascii():
        raise OperatorError("--tracestate holds more than ASCII; expected it as the span carried it")
    kept_rate = percent / 100 if percent is not None else 1.0 if rate is None else rate
    try:
        keep, weight, threshold, reason, ignored = transcode.explain_sampling(
            trace_id, mode=mode, rate=kept_rate, seed=seed, trace_state=tracestate
        )
    except ValueError as wrong:
        raise OperatorError(str(wrong)) from wrong
    answer = {"keep": keep, "weight": weight, "threshold": threshold, "reason": reason}
    if form == "json":
        click.echo(json.dumps({**answer, "ignored": ignored}))
        return
    for name, value in answer.items():
        click.echo(f"{name:<10}{'unknown' if value is None else str(value).lower()}")
    if ignored:
        what = " and ".join(f"'{name}'" for name in ignored)
        click.echo(f"ignored   {what} of the trace state: malformed; counted as absent")
