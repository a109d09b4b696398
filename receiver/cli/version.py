"""`trace-drain version`."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Literal

import click

from receiver import __version__, transcode


def versions() -> dict[str, str]:
    """What runs: this package, its core, and what it stands on."""
    return {
        "version": __version__,
        "core": transcode.VERSION,
        "core_profile": transcode.BUILD_PROFILE,
        "python": platform.python_version(),
        "aiohttp": _installed("aiohttp"),
        "clickhouse_connect": _installed("clickhouse-connect"),
        "engine": _engine(),
    }


def _engine() -> str:
    """The embedded engine; its major and minor version are ClickHouse's."""
    engine = _installed("chdb-core")
    return f"chdb {_installed('chdb')} (engine {engine})" if engine != "not installed" else engine


def _installed(package: str) -> str:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return "not installed"


@click.command()
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the listing."
)
def version(form: Literal["text", "json"]) -> None:
    """Print what runs: package, core and its build profile, aiohttp, engine."""
    found = versions()
    if form == "json":
        click.echo(json.dumps(found))
    else:
        for name, value in found.items():
            click.echo(f"{name:<20}{value}")
