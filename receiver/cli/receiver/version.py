"""`trace-drain version`: the versions of the receiver and its dependencies."""

from __future__ import annotations

import json
from typing import Literal

import click

from receiver.supervisor.versions import versions


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def version(form: Literal["text", "json"]) -> None:
    """Print the versions of the package, the core and its build profile, aiohttp and the engine."""
    by_component = versions()
    if form == "json":
        click.echo(json.dumps(by_component))
    else:
        for name, value in by_component.items():
            click.echo(f"{name:<20}{value}")
