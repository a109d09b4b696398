"""Address of the other end of a connection."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

V6_NETWORK_BITS = 64
"""IPv6 networks of this size count as one client, because providers assign them to one customer."""


def peer_address(peer: str | None) -> IPv4Address | IPv6Address | None:
    """Return the address of a peer, as IPv4 where the peer uses IPv4; `None` if it is not known."""
    try:
        # The zone of a link-local address names our interface, not the client.
        address = ip_address((peer or "").partition("%")[0])
    except ValueError:
        return None
    # A socket for both families shows IPv4 clients in ::ffff:0:0/96.
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def network_of(peer: str | None) -> str:
    """Return the key for limits per client: an IPv4 address, or an IPv6 network."""
    address = peer_address(peer)
    if isinstance(address, IPv6Address) and not address.is_loopback:
        return str(IPv6Network((address, V6_NETWORK_BITS), strict=False).network_address)
    return peer or "" if address is None else str(address)
