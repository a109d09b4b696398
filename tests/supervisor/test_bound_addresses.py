"""Addresses of the ports: bound, configured, and after a reload."""

from __future__ import annotations

import msgspec

from receiver.settings import Access, Settings
from receiver.supervisor.reload import applicable_settings
from receiver.supervisor.sockets import open_sockets, urls_by_name, with_addresses_of, with_bound_addresses

ANY_PORT = "127.0.0.1:0"


def test_bound_port_of_the_clickhouse_endpoint_is_no_change_of_its_setting() -> None:
    configured = Settings(api=Access(clickhouse_listen="127.0.0.1:0"))
    sockets = open_sockets(
        msgspec.structs.replace(configured, listen=ANY_PORT, admin_listen=ANY_PORT, api_listen=ANY_PORT), {}
    )
    running = with_bound_addresses(configured, configured, sockets)
    sockets.close()

    port = running.api.clickhouse_listen.rpartition(":")[2]
    assert int(port) > 0
    assert urls_by_name(running)["clickhouse"] == f"http://127.0.0.1:{port}"
    assert with_addresses_of(running, configured, configured).api == running.api
    assert with_addresses_of(running, configured, Settings()).api == Access()
    assert "clickhouse" not in urls_by_name(Settings())


def test_reload_applies_the_token_of_the_clickhouse_endpoint_but_not_its_address() -> None:
    running = Settings(api=Access(clickhouse_listen="127.0.0.1:1", clickhouse_token="old"))
    new = Settings(api=Access(clickhouse_listen="127.0.0.1:2", clickhouse_token="new"))
    moved = Settings(api=Access(clickhouse_listen="", clickhouse_token="old"))

    result, unchanged = applicable_settings(running, new), applicable_settings(running, moved)

    assert result.settings.api == Access(clickhouse_listen="127.0.0.1:1", clickhouse_token="new")
    assert (result.changed, result.waiting) == (("api",), ("api.clickhouse_listen",))
    assert (unchanged.changed, unchanged.waiting) == ((), ("api.clickhouse_listen",))


def test_reload_keeps_the_key_of_the_sessions() -> None:
    running, new = Settings(), Settings(api=Access(session_key="k" * 32))

    result = applicable_settings(running, new)

    assert result.settings.api == running.api
    assert (result.changed, result.waiting) == ((), ("api.session_key",))
