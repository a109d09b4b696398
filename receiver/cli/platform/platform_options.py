"""Options of the commands that call the platform or its gateway, and the clients that they configure.

Secrets come from files and settings only: other users of the machine can read the arguments of a process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec

from receiver.cli.shell.options import FILE_PATH, config_option
from receiver.config.load import Sources
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.gateway import Gateway
from receiver.settings import Platform

Command = TypeVar("Command", bound=Callable[..., Any])
Options = Mapping[str, Any]
"""Values of the options by name, checked by click."""
SETTING_OF: Final = {
    "base_url": "platform.base_url",
    "token_file": "platform.token_file",
    "team": "platform.team",
    "slug": "platform.slug",
    "gateway_url": "platform.gateway_url",
    "api_key_file": "platform.api_key_file",
}
"""Setting of each option."""
_PLATFORM_OPTIONS: Final = (
    config_option,
    click.option("--base-url", metavar="URL", help="Address of the platform's API."),
    click.option("--token-file", type=FILE_PATH, metavar="FILE", help="File with the access token."),
    click.option("--team", metavar="ID", help="Id of the team that owns the token."),
    click.option("--slug", metavar="SLUG", help="Slug of the team, if its id is not known."),
)
_GATEWAY_OPTIONS: Final = (
    config_option,
    click.option("--gateway-url", metavar="URL", help="Address of the platform's gateway."),
    click.option("--api-key-file", type=FILE_PATH, metavar="FILE", help="File with the gateway's API key."),
)


def platform_options(command: Command) -> Command:
    """Add the options that `platform_client` needs."""
    return _added(command, _PLATFORM_OPTIONS)


def gateway_options(command: Command) -> Command:
    """Add the options that `gateway` needs."""
    return _added(command, _GATEWAY_OPTIONS)


def platform_client(options: Options) -> PlatformClient:
    """Return the client of the platform's API. Raises `OperatorError` for a wrong setting."""
    table = _settings(options)
    # A team in the arguments replaces the configured team, whichever of the two names it has.
    if options["team"] and not options["slug"]:
        table = msgspec.structs.replace(table, slug="")
    if options["slug"] and not options["team"]:
        table = msgspec.structs.replace(table, team="")
    return PlatformClient(
        table.base_url, table.token, team=table.team, slug=table.slug, timeout_s=table.timeout_s
    )


def gateway(options: Options) -> Gateway:
    """Return the client of the gateway. Raises `OperatorError` for a wrong setting."""
    table = _settings(options)
    return Gateway(table.gateway_url, table.api_key, table.timeout_s)


def _settings(options: Options) -> Platform:
    flags = {
        f"--{name.replace('_', '-')}": (key, options[name])
        for name, key in SETTING_OF.items()
        if options.get(name) is not None
    }
    return Sources(options["config"], dict(os.environ), flags).load().settings.platform


def _added(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    # Decorators apply from the last to the first, and the help lists them in the order of the list.
    for option in reversed(options):
        command = option(command)
    return command
