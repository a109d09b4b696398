"""Installations on disk: no id is reused, states change in any order, a crash leaks no token."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver.durable.files import DIRECTORY_MODE, DISK, FILE_MODE
from receiver.errors import InstallationFailed
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.records import CHANGES_MAX, State
from tests.support.faulty_disk import WRITE_CALLS, DiskFault, process_with
from tests.support.installations import T0_S, TOKEN, bytes_below, installation
from tests.support.memory_disk import Killed

KEY = "k" * 32


def test_p30_added_installation_is_read_again_with_its_token(tmp_path: Path) -> None:
    added = installation(scopes=("deployment",), user_id="user_1", other={"token_type": "Bearer", "x": [1]})

    Installations(tmp_path).add(added, TOKEN)

    reopened = Installations(tmp_path)
    assert reopened.all() == [added]
    assert reopened.find("icfg_a1") == added
    assert reopened.token("icfg_a1") == TOKEN
    assert reopened.token("icfg_b2") == ""
    assert TOKEN not in repr(reopened.all())


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("state", ["active", "disabled", "deleted", "removed"])
def test_p30_id_is_never_reused(tmp_path: Path, state: State, *, is_reopened: bool) -> None:
    stored = Installations(tmp_path)
    stored.add(installation(), TOKEN)
    stored.set_state("icfg_a1", state, T0_S + 1)
    before, token = stored.all(), stored.token("icfg_a1")
    if is_reopened:
        stored = Installations(tmp_path)

    with pytest.raises(InstallationFailed, match="used before"):
        stored.add(installation(team_id="team_2"), "another token")

    assert stored.all() == before
    assert stored.token("icfg_a1") == token
    assert b"another token" not in bytes_below(tmp_path)


def test_p30_reinstallation_keeps_the_old_record_under_its_own_id(tmp_path: Path) -> None:
    stored = Installations(tmp_path)
    stored.add(installation("icfg_old"), TOKEN)
    stored.set_state("icfg_old", "removed", T0_S + 1)

    stored.add(installation("icfg_new", installed_at_s=T0_S + 2), "new token")

    assert [(each.id, each.state) for each in Installations(tmp_path).all()] == [
        ("icfg_new", "active"),
        ("icfg_old", "removed"),
    ]
    assert stored.token("icfg_old") == ""
    assert stored.token("icfg_new") == "new token"


def test_p30_id_of_an_unreadable_record_is_not_reused(tmp_path: Path) -> None:
    Installations(tmp_path).add(installation(), TOKEN)
    (tmp_path / "installations" / "icfg_a1.json").write_bytes(b'{"id": ')
    with capture_logs() as logged:
        stored = Installations(tmp_path)

    with pytest.raises(InstallationFailed, match="used before"):
        stored.add(installation(), "another token")

    assert stored.unreadable == {"icfg_a1"}
    assert stored.all() == []
    assert [line["event"] for line in logged] == ["record cannot be read"]


@pytest.mark.parametrize("name", ["", "x" * 201, "é" * 40, "a\nb", "\0"])
def test_id_that_cannot_be_stored_is_refused(tmp_path: Path, name: str) -> None:
    stored = Installations(tmp_path)

    with pytest.raises(InstallationFailed):
        stored.add(installation(name), TOKEN)

    assert not stored.set_state(name, "removed", T0_S)
    assert bytes_below(tmp_path) == b""


@pytest.mark.parametrize("name", ["../../etc/passwd", ".", "..", ".hidden.tmp", "a/b", "a%2Fb", "A b"])
def test_id_of_any_characters_stays_inside_the_directory(tmp_path: Path, name: str) -> None:
    Installations(tmp_path / "platform").add(installation(name), TOKEN)

    reopened = Installations(tmp_path / "platform")

    assert [each.id for each in reopened.all()] == [name]
    assert reopened.token(name) == TOKEN
    assert {path.name for path in tmp_path.iterdir()} == {"platform"}
    assert len(list((tmp_path / "platform").rglob("*"))) == 4


def test_p40_states_are_the_same_in_any_order_of_arrival(tmp_path: Path) -> None:
    changes: list[tuple[State, float]] = [("disabled", 10), ("active", 20), ("disabled", 30), ("removed", 25)]
    for number in range(10):
        stored = Installations(tmp_path / str(number))
        stored.add(installation(), TOKEN)
        random.Random(number).shuffle(changes)

        for state, after_s in changes + changes[:2]:
            stored.set_state("icfg_a1", state, T0_S + after_s)

        assert stored.all()[0].state == "removed"
        assert not stored.has_token("icfg_a1")


def test_p40_disabled_installation_keeps_its_token_and_becomes_active_again(tmp_path: Path) -> None:
    stored = Installations(tmp_path)
    stored.add(installation(), TOKEN)

    assert stored.set_state("icfg_a1", "disabled", T0_S + 5)
    assert not stored.set_state("icfg_a1", "disabled", T0_S + 6)
    assert not stored.set_state("icfg_a1", "active", T0_S + 4)
    assert (stored.all()[0].state, stored.all()[0].since_s) == ("disabled", T0_S + 5)
    assert stored.set_state("icfg_a1", "active", T0_S + 7)

    assert Installations(tmp_path).token("icfg_a1") == TOKEN
    assert [change.state for change in stored.all()[0].changes] == ["active", "disabled", "active"]


def test_p50_removal_that_arrives_before_the_installation_prevents_it(tmp_path: Path) -> None:
    stored = Installations(tmp_path)

    assert stored.set_state("icfg_a1", "removed", T0_S)
    assert not stored.set_state("icfg_b2", "disabled", T0_S)

    with pytest.raises(InstallationFailed):
        stored.add(installation(), TOKEN)
    assert [each.state for each in stored.all()] == ["removed"]
    assert TOKEN.encode() not in bytes_below(tmp_path)


def test_record_keeps_its_first_and_its_latest_changes() -> None:
    record = installation()
    for number in range(2 * CHANGES_MAX):
        record = record.changed("active" if number % 2 else "disabled", T0_S + 1 + number)

    assert len(record.changes) == CHANGES_MAX
    assert record.changes[0].at_s == T0_S
    assert record.changes[-1].at_s == T0_S + 2 * CHANGES_MAX


def test_p34_scopes_are_replaced(tmp_path: Path) -> None:
    stored = Installations(tmp_path)
    stored.add(installation(), TOKEN)

    assert stored.set_scopes("icfg_a1", ["project", "deployment", "project"], 2.0)
    assert not stored.set_scopes("icfg_a1", ["team"], 1.0)
    assert not stored.set_scopes("icfg_b2", ["deployment"], 3.0)

    assert Installations(tmp_path).all()[0].scopes == ("deployment", "project")


@pytest.mark.parametrize("key", ["", KEY])
def test_files_are_readable_by_their_owner_only_also_if_their_modes_were_widened(
    tmp_path: Path, key: str
) -> None:
    Installations(tmp_path / "platform", key).add(installation(), TOKEN)

    for _ in range(2):
        modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
        assert modes == {FILE_MODE}
        assert (tmp_path / "platform" / "tokens").stat().st_mode & 0o777 == DIRECTORY_MODE
        (tmp_path / "platform" / "tokens" / "icfg_a1").chmod(0o644)
        (tmp_path / "platform" / "tokens").chmod(0o755)
        Installations(tmp_path / "platform", key)


def test_destroyed_token_is_in_no_file(tmp_path: Path) -> None:
    stored = Installations(tmp_path)
    stored.add(installation(), TOKEN)
    token = tmp_path / "tokens" / "icfg_a1"
    second_name = tmp_path / "second name of the file"
    second_name.hardlink_to(token)

    stored.set_state("icfg_a1", "removed", T0_S + 1)
    stored.set_state("icfg_a1", "removed", T0_S + 1)

    assert not token.exists()
    assert second_name.read_bytes().strip(b"\0") == b""
    assert stored.token("icfg_a1") == ""


def test_files_that_cannot_be_read_do_not_hide_the_other_installations(tmp_path: Path) -> None:
    Installations(tmp_path).add(installation(), TOKEN)
    for name in ("installations/icfg_0.json", "installations/.x.tmp", "tokens/icfg_0", "tokens/.x.tmp"):
        (tmp_path / name).mkdir()

    with capture_logs() as logged:
        reopened = Installations(tmp_path, KEY)

    assert [each.id for each in reopened.all()] == ["icfg_a1"]
    assert reopened.unreadable == {"icfg_0"}
    assert (reopened.token_kind("icfg_a1"), reopened.token_kind("icfg_0")) == ("encrypted", "damaged")
    assert {line["path"].removeprefix(f"{tmp_path}/") for line in logged} == {
        "installations/icfg_0.json",
        "installations/.x.tmp",
        "tokens/icfg_0",
        "tokens/.x.tmp",
    }


def test_record_that_the_disk_could_not_read_at_the_start_is_read_later(tmp_path: Path) -> None:
    Installations(tmp_path).add(installation(), TOKEN)
    error = OSError(errno.EIO, "input/output error")
    with process_with(DiskFault(frozenset({"read"}), 1, is_permanent=True, error=lambda: error)):
        stored = Installations(tmp_path)
        assert stored.all() == []
        with pytest.raises(OSError, match="input/output error"):
            stored.set_state("icfg_a1", "removed", T0_S + 1)

    stored.complete()
    assert [each.id for each in stored.all()] == ["icfg_a1"]
    assert stored.unreadable == frozenset()
    assert stored.set_state("icfg_a1", "removed", T0_S + 1)
    assert not stored.has_token("icfg_a1")


def test_token_that_cannot_be_destroyed_is_destroyed_later(tmp_path: Path) -> None:
    stored = Installations(tmp_path)
    stored.add(installation(), TOKEN)
    fault = DiskFault(
        frozenset({"unlink"}), 1, is_permanent=True, error=lambda: OSError(errno.EIO, "input/output error")
    )
    with process_with(fault):
        with pytest.raises(OSError, match="input/output error"):
            stored.set_state("icfg_a1", "removed", T0_S + 1)
        stored.complete()
        Installations(tmp_path)
        assert stored.has_token("icfg_a1")

    stored.complete()
    assert not stored.has_token("icfg_a1")


def at_every_call(tmp_path: Path, error: BaseException) -> Iterator[tuple[Path, DiskFault]]:
    """Yield a directory and a fault for each call of the disk, until the last fault is not reached."""
    for at in range(1, 100):
        fault = DiskFault(WRITE_CALLS, at, is_permanent=isinstance(error, Killed), error=lambda: error)
        yield tmp_path / str(at), fault
        if not fault.is_reached:
            return
    pytest.fail("the fault was reached at every call")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), Killed()], ids=["full", "killed"])
@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
def test_fault_at_any_call_leaves_no_token_without_its_record(
    tmp_path: Path, error: BaseException, key: str
) -> None:
    for directory, fault in at_every_call(tmp_path, error):
        with suppress(OSError, Killed), process_with(fault):
            Installations(directory, key).add(installation(), TOKEN)

        reopened = Installations(directory, key)

        assert reopened.token("icfg_a1") in (("", TOKEN) if fault.is_reached else (TOKEN,))
        assert reopened.find("icfg_a1") is not None or not reopened.has_token("icfg_a1")
        assert not list(directory.rglob("*.tmp"))


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "input/output error"), Killed()], ids=["error", "killed"]
)
@pytest.mark.parametrize("key", ["", KEY], ids=["removal", "encryption"])
def test_fault_while_a_token_is_destroyed_or_encrypted_is_repaired_at_the_next_start(
    tmp_path: Path, error: BaseException, key: str
) -> None:
    for directory, fault in at_every_call(tmp_path, error):
        Installations(directory).add(installation(), TOKEN)
        with suppress(OSError, Killed), process_with(fault):
            stored = Installations(directory, key)
            if not key:
                stored.set_state("icfg_a1", "removed", T0_S + 1)

        reopened = Installations(directory, key)

        record = reopened.find("icfg_a1")
        assert record is not None
        assert reopened.token("icfg_a1") == ("" if record.is_ended else TOKEN)
        assert TOKEN.encode() not in bytes_below(directory) or not (key or record.is_ended)
        assert fault.is_reached or bool(key) != record.is_ended


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
