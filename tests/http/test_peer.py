"""Tests of the key by which the limits per client count a peer."""

from __future__ import annotations

import pytest

from receiver.http.peer import network_of


@pytest.mark.parametrize(
    ("peer", "key"),
    [
        pytest.param("192.0.2.1", "192.0.2.1", id="IPv4"),
        pytest.param("::ffff:192.0.2.1", "192.0.2.1", id="IPv4 on an IPv6 socket"),
        pytest.param("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::", id="IPv6 network of a customer"),
        pytest.param("fe80::1%eth0", "fe80::", id="with a zone"),
        pytest.param("::1", "::1", id="loopback"),
        pytest.param(None, "", id="not known"),
    ],
)
def test_client_is_an_ipv4_address_or_an_ipv6_network(peer: str | None, key: str) -> None:
    assert network_of(peer) == key
