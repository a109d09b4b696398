"""Addresses of the receiver's ports: settings with the bound ones, and URLs for commands on this machine."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from receiver.config.addresses import CLICKHOUSE, Address, listen_addresses, parse_address
from receiver.config.checks import problems_of
from receiver.errors import OperatorError
from receiver.settings import Settings
from receiver.supervisor.sockets import Sockets, address_of

NAME_OF = {"listen": "listen", "admin_listen": "admin", "api_listen": "api", CLICKHOUSE: "clickhouse"}
"""Name of each port in `receiver.json`, by its setting."""


def with_bound_addresses(configured: Settings, settings: Settings, sockets: Sockets) -> Settings:
    """Return settings with the bound addresses. Sockets from systemd must pass the checks for settings."""
    addresses = {
        "listen": str(address_of(sockets.drain[0])),
        "admin_listen": str(address_of(sockets.admin)),
        "api_listen": str(address_of(sockets.api)) if sockets.api else configured.api_listen,
        CLICKHOUSE: str(address_of(sockets.clickhouse)) if sockets.clickhouse else "",
    }
    problems = problems_of(_replaced(configured, addresses))
    if problems:
        raise OperatorError("\n".join(["the sockets passed by systemd cannot be used:", *problems]))
    return _replaced(settings, addresses)


def with_addresses_of(running: Settings, configured: Settings, new: Settings) -> Settings:
    """Return new settings with the bound addresses, as far as they are configured as at the start."""
    # Port 0 was replaced by the bound port, which must not look like a changed setting.
    before, bound = listen_addresses(configured), listen_addresses(running)
    now = listen_addresses(new)
    return _replaced(new, {key: bound[key] for key in bound if now.get(key) == before[key]})


def addresses_by_name(settings: Settings) -> dict[str, Address]:
    """Return the address of each port that is on, by its name in `receiver.json`."""
    return {NAME_OF[key]: parse_address(listen) for key, listen in listen_addresses(settings).items()}


def urls_by_name(settings: Settings) -> dict[str, str]:
    """Return the URL of each port that is on, for clients on this machine."""
    scheme = {"listen": "https"} if settings.tls.cert_file else {}
    return {
        name: f"{scheme.get(name, 'http')}://{address.to_connect}"
        for name, address in addresses_by_name(settings).items()
    }


def _replaced(settings: Settings, addresses: Mapping[str, str]) -> Settings:
    top = {key: address for key, address in addresses.items() if key != CLICKHOUSE}
    listen = addresses.get(CLICKHOUSE, settings.api.clickhouse_listen)
    api = msgspec.structs.replace(settings.api, clickhouse_listen=listen)
    return msgspec.structs.replace(settings, **top, api=api)
