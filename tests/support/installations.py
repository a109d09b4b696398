"""Records of installations for tests."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from receiver.platform.installations.records import Installation, StateChange

T0_S = 1_800_000_000.0
TOKEN = "token-of-the-platform-3f9a"


def installation(name: str = "icfg_a1", /, **fields: object) -> Installation:
    """Return an active installation on a team."""
    active = (StateChange("active", T0_S),)
    return replace(Installation(id=name, team_id="team_1", installed_at_s=T0_S, changes=active), **fields)


def bytes_below(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
