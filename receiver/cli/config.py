"""`trace-drain config show | check`."""

from __future__ import annotations

from typing import Literal

import click

from receiver.cli.options import settings_options, sources_of
from receiver.config.checks import require_place
from receiver.config.show import as_json, as_toml


@click.group()
def config() -> None:
    """Show or check the configuration."""


@config.command()
@settings_options
@click.option(
    "--format", "form", type=click.Choice(["toml", "json"]), default="toml", help="Form of the listing."
)
def show(form: Literal["toml", "json"], config: str | None, **flags: object) -> None:
    """Print every key, its value and who said it. Secrets are shown as `(set)`."""
    loaded = sources_of(config, **flags).load()
    click.echo(as_json(loaded) if form == "json" else as_toml(loaded))


@config.command()
@settings_options
def check(config: str | None, **flags: object) -> None:
    """Say whether `serve` would take this configuration; every problem at once."""
    loaded = sources_of(config, **flags).load()
    require_place(loaded.settings)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo("the configuration is fine")
