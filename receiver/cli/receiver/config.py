"""`trace-drain config show | check`: the settings in force, and whether they work on this machine."""

from __future__ import annotations

from typing import Literal

import click

from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.options import settings_options, sources_of
from receiver.config.checks import require_engine, require_place
from receiver.config.show import as_json, as_toml
from receiver.doctor.machine import inspect_machine, server_findings
from receiver.errors import CommandFailed
from receiver.printable import harmless_text
from receiver.reports import Finding


@click.group(cls=CommandGroup)
def config() -> None:
    """Show or check the configuration."""


@config.command(
    epilog=examples(
        "trace-drain config show --config trace-drain.toml",
        "trace-drain config show > trace-drain.toml      # a file with every setting and its default",
    )
)
@settings_options
@click.option("--format", "form", type=click.Choice(["toml", "json"]), default="toml", help="Output format.")
def show(form: Literal["toml", "json"], config: str | None, **flags: object) -> None:
    """Print every setting, its value and where the value comes from. Secrets are not printed."""
    loaded = sources_of(config, **flags).load()
    click.echo(as_json(loaded) if form == "json" else as_toml(loaded))


@config.command(
    epilog=examples(
        "trace-drain config check --config trace-drain.toml",
        "trace-drain config check --config trace-drain.toml --connect",
    )
)
@settings_options
@click.option("--connect", is_flag=True, help="Also connect to the ClickHouse server of store.url.")
def check(config: str | None, *, connect: bool, **flags: object) -> None:
    """Check whether `serve` works with this configuration on this machine, and print every problem at once.

    Checks the settings, certificates, ports and free disk space; with --connect also ClickHouse: user,
    password, database, tables and rights. Changes nothing. Exits with 2 if a setting is wrong, and with 1 for
    any other problem.
    """
    loaded = sources_of(config, **flags).load()
    require_place(loaded.settings)
    require_engine(loaded.settings)
    findings = [
        *(Finding("warning", text) for text in loaded.warnings),
        *inspect_machine(loaded.settings),
        *(server_findings(loaded.settings) if connect else ()),
    ]
    for finding in findings:
        if finding.level != "problem":
            click.echo(harmless_text(f"{finding.level}: {finding.text}"), err=True)
    # All at once, because an operator would otherwise repeat the check after each correction.
    problems = [f"  {finding.text}" for finding in findings if finding.level == "problem"]
    if problems:
        raise CommandFailed(
            "\n".join(["the settings are valid, but the receiver cannot work with them:", *problems])
        )
    click.echo("the configuration is fine")
