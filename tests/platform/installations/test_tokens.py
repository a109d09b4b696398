"""Tests of stored access tokens: encryption, rotation of the key, damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.errors import OperatorError
from receiver.platform.installations.installations import Installations
from tests.support.installations import TOKEN, bytes_below, installation

KEY = "k" * 32
NEW_KEY = "n" * 32


def test_tokens_are_encrypted_with_a_key_and_stored_ones_at_the_next_start(tmp_path: Path) -> None:
    Installations(tmp_path / "new", KEY).add(installation(), TOKEN)
    Installations(tmp_path / "old").add(installation(), TOKEN)
    second_name = tmp_path / "old" / "second name of the file"
    second_name.hardlink_to(tmp_path / "old" / "tokens" / "icfg_a1")

    for directory in (tmp_path / "new", tmp_path / "old"):
        Installations(directory, KEY)

        assert TOKEN.encode() not in bytes_below(directory)
        assert Installations(directory, KEY).token("icfg_a1") == TOKEN


def test_start_with_a_new_key_encrypts_the_tokens_of_the_previous_key_again(tmp_path: Path) -> None:
    before = Installations(tmp_path, KEY)
    before.add(installation(), TOKEN)
    before.add(installation("icfg_b2"), "token of b2")
    before.add(installation("icfg_c3"), "token of c3")
    (tmp_path / "tokens" / "icfg_b2").write_bytes(b"aes-256-gcm\ndamaged")
    (tmp_path / "tokens" / "icfg_c3").write_bytes(b"plain\n\xff")

    rotated = Installations(tmp_path, NEW_KEY, KEY)

    assert rotated.token("icfg_a1") == TOKEN
    assert Installations(tmp_path, NEW_KEY).token("icfg_a1") == TOKEN
    with pytest.raises(OperatorError, match="cannot be decrypted"):
        Installations(tmp_path, KEY).token("icfg_a1")
    with pytest.raises(OperatorError, match="cannot be decrypted"):
        rotated.token("icfg_b2")
    with pytest.raises(OperatorError, match="damaged"):
        rotated.token("icfg_c3")
    assert (tmp_path / "tokens" / "icfg_b2").read_bytes() == b"aes-256-gcm\ndamaged"


def test_start_without_a_new_key_leaves_the_files_as_they_are(tmp_path: Path) -> None:
    Installations(tmp_path, KEY).add(installation(), TOKEN)
    content = (tmp_path / "tokens" / "icfg_a1").read_bytes()

    reopened = Installations(tmp_path, KEY, NEW_KEY)

    assert reopened.token("icfg_a1") == TOKEN
    assert (tmp_path / "tokens" / "icfg_a1").read_bytes() == content


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        pytest.param("x" * 32, "cannot be decrypted", id="wrong key"),
        pytest.param("", "is encrypted; expected the setting platform.encryption_key_file", id="no key"),
    ],
)
def test_wrong_key_is_an_error_that_names_the_file_only(tmp_path: Path, key: str, reason: str) -> None:
    Installations(tmp_path, KEY).add(installation(), TOKEN)
    stored = Installations(tmp_path, key)

    with pytest.raises(OperatorError, match=reason) as refused:
        stored.token("icfg_a1")

    assert str(tmp_path / "tokens" / "icfg_a1") in str(refused.value)
    assert KEY not in str(refused.value)
    assert TOKEN not in str(refused.value)
    assert refused.value.__cause__ is None


def test_token_file_of_another_installation_is_refused(tmp_path: Path) -> None:
    stored = Installations(tmp_path, KEY)
    stored.add(installation(), TOKEN)
    stored.add(installation("icfg_b2"), "token of b2")
    tokens = tmp_path / "tokens"
    (tokens / "icfg_a1").replace(tokens / "icfg_b2")

    with pytest.raises(OperatorError, match="cannot be decrypted"):
        stored.token("icfg_b2")


def test_token_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    stored = Installations(tmp_path, KEY)
    stored.add(installation(), TOKEN)
    file = tmp_path / "tokens" / "icfg_a1"
    content = file.read_bytes()
    for length in range(60):
        file.write_bytes(content[:length])

        with pytest.raises(OperatorError, match="token file"):
            stored.token("icfg_a1")
