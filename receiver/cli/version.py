"""`trace-drain version`."""

from __future__ import annotations

import json
from typing import Literal

import click

from receiver.supervisor.versions import versions


@click.command()
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the listing."
)
def version(form: Literal["text", "json"]) -> None:
    """Print the versions of the package, the core and its build profile, aiohttp and the engine."""
    found = versions()
    if form == "json":
        click.echo(json.dumps(found))
    else:
        for name, value in found.items():
            click.echo(f"{name:<20}{value}")
