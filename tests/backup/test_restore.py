"""Restores: complete and checked, or refused without a change; repeated after an interruption."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from receiver.backup import manifest as manifests
from receiver.backup.backup import SPARE_BYTES
from receiver.durable.append_log import framed
from receiver.durable.files import Disk
from receiver.engine.embedded import Bootstrap
from receiver.errors import CommandFailed, OperatorError
from tests.backup.snapshots import Content, DataDirectory, content_of, restored
from tests.support.cases import each_case
from tests.support.faulty_disk import WRITE_CALLS, faults_at_each_call, process_with
from tests.support.memory_disk import Killed, full_disk

SEGMENT = "journal/00000000000000aa"


@pytest.fixture
def backup(data: DataDirectory, tmp_path: Path) -> Path:
    data.back_up(tmp_path / "backup")
    return tmp_path / "backup"


def write(root: Path, files: Content) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def test_directory_with_a_store_is_refused_and_unchanged(backup: Path, tmp_path: Path) -> None:
    write(tmp_path / "used", {"store/status": b"", "ledger.head": b"head"})

    with pytest.raises(CommandFailed, match="has a store already"):
        restored(backup, tmp_path / "used")

    assert content_of(tmp_path / "used") == {"store/status": b"", "ledger.head": b"head"}


def damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@each_case(
    ("pattern", "change", "error"),
    [
        ("files/*/*", damaged, "is damaged: .* with another checksum"),
        ("files/*/*", lambda content: content[:-1], "is damaged"),
        ("files/*/*", None, "the backup lacks"),
        ("manifest", damaged, "'.*manifest' is damaged or incomplete"),
        ("manifest", lambda content: content[:-1], "is damaged or incomplete"),
        ("manifest", lambda _: b"", "is damaged or incomplete"),
        ("manifest", None, "is not a backup: it has no file 'manifest'"),
        (
            "manifest",
            lambda _: framed(b"TDBM", [b'{"format": 2, "of_a_newer_version": true}']),
            "has the form 2; this version reads forms up to 1",
        ),
        (
            "manifest",
            lambda content: framed(b"TDBM", [content[12:].replace(b"ledger/", b"../////")]),
            "names files outside of the data directory",
        ),
    ],
)
def test_backup_that_is_damaged_is_refused_and_nothing_changes(
    backup: Path, tmp_path_factory: pytest.TempPathFactory, pattern: str, change: object, error: str
) -> None:
    directory = tmp_path_factory.mktemp("case") / "backup"
    shutil.copytree(backup, directory)
    data_dir = directory.with_name("data")
    write(data_dir, {"views.json": b"views"})
    path = max(directory.glob(pattern))
    content = path.read_bytes()
    path.unlink()
    if callable(change):
        path.write_bytes(change(content))

    with pytest.raises(CommandFailed, match=error):
        restored(directory, data_dir)

    assert content_of(data_dir) == {"views.json": b"views"}
    assert [path.name for path in data_dir.iterdir()] == ["views.json"]


def test_damaged_manifest_is_not_replaced_by_the_next_backup(data: DataDirectory, backup: Path) -> None:
    (backup / "manifest").write_bytes(damaged((backup / "manifest").read_bytes()))
    before = content_of(backup)

    with pytest.raises(CommandFailed, match="is damaged or incomplete"):
        data.back_up(backup)

    assert content_of(backup) == before


def test_backup_of_another_database_is_refused(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"of the database 'otel'; expected store\.database to name it"):
        restored(backup, tmp_path / "restored", store={"database": "traces"})


def test_missing_rows_are_reported_and_nothing_changes(
    data: DataDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An engine that opens the store and finds fewer rows than the parts had.
    monkeypatch.setattr("tests.backup.snapshots.PartsStore.rows", lambda *_: [("otel_traces", "20261127", 2)])
    data.back_up(tmp_path / "backup")

    with pytest.raises(
        CommandFailed, match="'otel_traces' has 0 rows of 20261128 after the restore; expected 3"
    ):
        restored(tmp_path / "backup", tmp_path / "restored", store={"retention_days": 0})

    assert list((tmp_path / "restored").iterdir()) == []


def test_rows_that_expired_since_the_backup_may_be_missing(
    data: DataDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.add_part("20200131_1_1_0", rows=5)
    data.back_up(tmp_path / "backup")
    rows = [("otel_traces", "20261127", 2), ("otel_traces", "20261128", 3)]
    monkeypatch.setattr("tests.backup.snapshots.PartsStore.rows", lambda *_: rows)

    restored(tmp_path / "backup", tmp_path / "restored")
    with pytest.raises(CommandFailed, match="has 0 rows of 20200131"):
        restored(
            tmp_path / "backup",
            tmp_path / "again",
            store={"retention_days": 0},
            platform={"events": {"retention_days": 0}},
        )


def test_restore_that_does_not_fit_is_refused(
    data: DataDirectory, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(map(len, data.content.values())) + SPARE_BYTES
    monkeypatch.setattr(Disk, "free_bytes", lambda _self, _path: needed - 1)

    with pytest.raises(CommandFailed, match="free; expected"):
        restored(backup, tmp_path / "restored")

    assert list((tmp_path / "restored").iterdir()) == []


def test_spans_and_records_in_the_directory_stay_and_the_state_of_the_lost_store_is_moved(
    data: DataDirectory, tmp_path: Path
) -> None:
    for name in (f"{SEGMENT}/0000000002.open", f"{SEGMENT}/0000000003.native.lz4", "dead/aa-1.poison.json"):
        data.write(name, b"of the backup")
    data.write("views.json", b"of the backup")
    data.back_up(tmp_path / "backup")
    survivors = {
        # Sealed after the backup was made, so the same segment has another name.
        f"{SEGMENT}/0000000002.native.lz4": b"in DATA",
        f"{SEGMENT}/0000000004.native.lz4": b"in DATA",
        "views.json": b"in DATA",
        "store.creating": b"",
    }
    lost = {"ledger/0000000009.log": b"in DATA", "splits/plan.json": b"in DATA"}
    write(tmp_path / "used", survivors | lost)

    restored(tmp_path / "backup", tmp_path / "used")

    expected = data.content | survivors
    del expected["store.creating"], expected[f"{SEGMENT}/0000000002.open"]
    aside = {f"replaced-by-restore/{name}": content for name, content in lost.items()}
    assert content_of(tmp_path / "used") == expected | aside


def test_files_without_the_spans_of_a_segment_keep_no_segment_of_the_backup_out(
    data: DataDirectory, tmp_path: Path
) -> None:
    files = {f"{SEGMENT}/0000000005.native.lz4": b"of the backup", "dead/aa-1.poison.json": b"of the backup"}
    for name, content in files.items():
        data.write(name, content)
    data.back_up(tmp_path / "backup")
    write(tmp_path / "used", {f"{SEGMENT}/0000000005.cut": b"in DATA", "dead/aa-1.damaged.json": b"in DATA"})

    restored(tmp_path / "backup", tmp_path / "used")

    assert files.items() <= content_of(tmp_path / "used").items()


@pytest.mark.fault("a restore is killed, or its disk fails, at any call")
@pytest.mark.parametrize("error", [Killed, full_disk], ids=["killed", "full disk"])
def test_restore_interrupted_at_any_call_is_repeated(
    data: DataDirectory, backup: Path, tmp_path: Path, error: type[BaseException]
) -> None:
    survivors = {"ledger/0000000009.log": b"in DATA", f"{SEGMENT}/0000000004.native.lz4": b"in DATA"}
    interrupted = 0
    for fault in faults_at_each_call(WRITE_CALLS, error, is_permanent=error is Killed):
        target = tmp_path / f"restored{fault.at}"
        write(target, survivors)
        try:
            with process_with(fault):
                restored(backup, target)
        except (Killed, OSError):
            interrupted += 1
        if not (target / "store").exists():
            if (target / "restore").exists():
                # Otherwise the receiver would create an empty store.
                with pytest.raises(OperatorError, match="was interrupted"):
                    Bootstrap(target / "store").begin(disk_free_min=0)
            restored(backup, target)

        found = content_of(target)
        assert {name: found[name] for name in data.content} == data.content
        assert found[f"{SEGMENT}/0000000004.native.lz4"] == b"in DATA"
        assert found["replaced-by-restore/ledger/0000000009.log"] == b"in DATA"
    assert interrupted > 20


def test_manifest_of_this_version_has_the_highest_form_that_it_reads(backup: Path) -> None:
    manifest = manifests.read_manifest(backup)

    assert manifest is not None
    assert manifest.format == manifests.FORMAT
