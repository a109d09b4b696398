"""Options that several commands take."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from receiver.config.load import Loaded, Sources
from receiver.errors import OperatorError
from receiver.settings import Settings
from receiver.time_range import SINCE_DEFAULT

Command = TypeVar("Command", bound=Callable[..., Any])

SERVE_KEYS = {
    "data": "data_dir",
    "listen": "listen",
    "admin_listen": "admin_listen",
    "api_listen": "api_listen",
    "clickhouse_listen": "api.clickhouse_listen",
    "intakes": "intakes",
    "store": "store.url",
    "tls_self_signed": "tls.self_signed",
    "insecure": "insecure",
    "behind_proxy": "behind_proxy",
    "cluster": "store.cluster",
    "storage_policy": "store.storage_policy",
}
"""Setting of each flag."""

FILE_PATH = click.Path(readable=False)
"""A path that a shell completes. It may be missing: the settings check it and have the messages."""
CONFIG: Final[dict[str, Any]] = {
    "type": FILE_PATH,
    "metavar": "FILE",
    "help": "Configuration file. [trace-drain.toml if present]",
}
DATA: Final[dict[str, Any]] = {"type": FILE_PATH, "metavar": "DIR", "help": "Data directory. [data]"}
SINCE: Final[dict[str, Any]] = {
    "default": SINCE_DEFAULT,
    "show_default": True,
    "metavar": "TIME",
    "help": "How far back, 15m, 24h, 7d, an instant, 2026-01-31T10:00Z, or a range, -3h..-1h.",
}
"""Attributes of options."""
config_option = click.option("--config", **CONFIG)
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: one object per line.",
)
data_option = click.option("--data", **DATA)
cluster_option = click.option(
    "--cluster",
    metavar="NAME",
    help="Cluster with the tables on every node, as in system.clusters. [store.cluster]",
)


def settings_options(command: Command) -> Command:
    """Add every flag that sets a setting."""
    options = [
        config_option,
        data_option,
        click.option("--listen", metavar="HOST:PORT", help="Drain endpoint; port 0 picks a free port."),
        click.option("--admin-listen", metavar="HOST:PORT", help="Health checks and metrics."),
        click.option("--api-listen", metavar="HOST:PORT", help="Query API."),
        click.option("--clickhouse-listen", metavar="HOST:PORT", help="Endpoint for ClickHouse's clients."),
        click.option("--intakes", metavar="N", help="Number of intake processes; about one per core."),
        click.option("--store", metavar="URL", help="Store: embedded, or http(s)://user@host:port/database."),
        click.option(
            "--tls-self-signed", is_flag=True, default=None, help="Generate a certificate, to try TLS."
        ),
        click.option(
            "--insecure",
            is_flag=True,
            default=None,
            help="Allow listening beyond loopback without credentials or TLS.",
        ),
        click.option("--behind-proxy", is_flag=True, default=None, help="A proxy in front terminates TLS."),
    ]
    # Decorators apply from the last to the first, and the help lists them in the order of the list.
    for option in reversed(options):
        command = option(command)
    return command


def sources_of(config: str | None, **flags: object) -> Sources:
    """Return the sources of settings: configuration file, environment and the flags of this call."""
    # An omitted flag is None, and must not override the file or the environment.
    values_by_flag = {
        f"--{name.replace('_', '-')}": (SERVE_KEYS[name], value)
        for name, value in flags.items()
        if value is not None
    }
    return Sources(config, dict(os.environ), values_by_flag)


def loaded_with(config: str | None, data: str | None, **flags: object) -> Loaded:
    """Load the settings of a command other than `serve`."""
    return sources_of(config, data=data, **flags).load()


def data_dir_of(settings: Settings) -> Path:
    """Return the data directory of a command that only reads. Raises `OperatorError` if there is none."""
    directory = Path(settings.data_dir)
    if not directory.is_dir():
        raise OperatorError(
            f"no data directory '{directory}'; `{serve_command(settings)}` creates it; "
            "set --data DIR or --config FILE for another"
        )
    return directory


def serve_command(settings: Settings) -> str:
    """Return the `serve` command line that uses the same data directory and configuration file."""
    context = click.get_current_context(silent=True)
    parameters = context.params if context else {}
    flags = [
        word
        for name in ("config", "data")
        if parameters.get(name)
        for word in (f"--{name}", parameters[name])
    ]
    return shlex.join(["trace-drain", "serve", *(flags or ["--data", settings.data_dir])])
