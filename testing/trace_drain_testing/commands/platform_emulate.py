"""`trace-drain platform emulate`: an emulator of the hosting platform, for tests and demos."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Literal

import click
import msgspec

from receiver.cli.shell.group import examples
from receiver.config.addresses import Address, parse_address
from receiver.errors import OperatorError
from trace_drain_testing.emulator.application import Facts
from trace_drain_testing.emulator.clock import STARTED_AT_S, Clock
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.emulator.run import FACTS_NAME
from trace_drain_testing.emulator.run import emulate as run_emulator


@click.command(
    context_settings={"show_default": True},
    epilog=examples(
        "trace-drain platform emulate --listen 127.0.0.1:4400 --data emulator",
        "trace-drain platform emulate --data emulator --clock manual --seed 7",
    ),
)
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:0", help="Port 0 picks a free port.")
@click.option(
    "--data", metavar="DIR", required=True, help=f"Directory of {FACTS_NAME}: addresses and credentials."
)
@click.option(
    "--clock",
    type=click.Choice(["real", "manual"]),
    default="real",
    help="manual: time moves only by POST /clock of the control API.",
)
@click.option("--start", type=click.FloatRange(0), metavar="SECONDS", help="Time at the start, since 1970.")
@click.option("--seed", type=int, default=1, help="The same seed makes the same ids.")
@click.option("--insecure", is_flag=True, help="Allow listening beyond loopback, without authentication.")
def emulate(  # noqa: PLR0913 - the options
    listen: str,
    data: str,
    clock: Literal["real", "manual"],
    start: float | None,
    seed: int,
    *,
    insecure: bool,
) -> None:
    """Emulate the hosting platform until Ctrl-C or SIGTERM.

    Answers the platform's API, the gateway, and a control page and control API, which has no authentication.
    The state is in memory: an emulator that starts again has forgotten it.
    """
    address = _address(listen, is_insecure=insecure)
    if start is None:
        start = STARTED_AT_S if clock == "manual" else time.time()
    platform = Platform(Clock(start, is_manual=clock == "manual"), seed)
    asyncio.run(run_emulator(platform, address, Path(data), _print_facts, _stop_signal))


def _address(listen: str, *, is_insecure: bool) -> Address:
    try:
        address = parse_address(listen)
    except OperatorError as error:
        raise OperatorError(f"--listen {error}") from error
    if not address.is_loopback and not is_insecure:
        raise OperatorError(
            f"--listen is '{address}', which other machines can reach, and the control API has no "
            "authentication; expected a loopback address, or --insecure"
        )
    return address


def _print_facts(facts: Facts) -> None:
    # The credentials too, because they give access to this emulator only.
    for name, value in msgspec.to_builtins(facts).items():
        click.echo(f"{name:<15} {value}")
    click.echo(f"the same values are in {FACTS_NAME}; Ctrl-C stops the emulator")


async def _stop_signal() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
