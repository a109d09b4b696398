"""Records in a directory that cannot be listed: the start succeeds, and no record is replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from receiver.durable.files import DISK
from receiver.errors import InstallationFailed
from receiver.platform.installations.installations import Installations
from tests.support.installations import T0_S, TOKEN, installation


@pytest.mark.parametrize("place", ["", "installations", "tokens"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_directory_that_cannot_be_listed_stops_neither_the_start_nor_later_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, code: int
) -> None:
    Installations(tmp_path).add(installation(), TOKEN)
    names = DISK.names

    def refuse(path: Path) -> list[str]:
        if path.is_relative_to(tmp_path / place):
            raise OSError(code, os.strerror(code), str(path))
        return names(path)

    with monkeypatch.context() as patch:
        patch.setattr(DISK, "names", refuse)
        stored = Installations(tmp_path)
        if place != "tokens":
            assert stored.all() == []
            with pytest.raises(OSError, match=os.strerror(code)):
                stored.add(installation(team_id="team_2"), "another token")
            with pytest.raises(OSError, match=os.strerror(code)):
                stored.set_state("icfg_a1", "removed", T0_S + 1)

    stored.complete()
    assert [each.id for each in stored.all()] == ["icfg_a1"]
    assert stored.token("icfg_a1") == TOKEN
    with pytest.raises(InstallationFailed, match="used before"):
        stored.add(installation(team_id="team_2"), "another token")
