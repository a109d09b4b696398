"""Session cookies and their key: which cookies are refused, and what happens to a damaged key file."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver.console.api.sessions import KEY_BYTES, KEY_NAME, load_key, new_key, session_user, session_value
from receiver.durable.files import FILE_MODE
from receiver.settings import User
from tests.support.cases import each_case
from tests.support.faulty_disk import WRITE_CALLS, DiskFault, process_with

KEY = bytes(range(32))
NOW_S = 1_800_000_000.0
EXPIRY_S = int(NOW_S) + 60
ANN = User(name="ann", token="a" * 16)
BOB = User(name="bob", token="b" * 16)


def user_of(value: str, *users: User, key: bytes = KEY, now_s: float = NOW_S) -> User | None:
    return session_user(key, value, users or (ANN, BOB), now_s)


@each_case("user", [ANN, BOB])
def test_cookie_names_its_user_until_it_expires(user: User) -> None:
    value = session_value(KEY, user, EXPIRY_S)

    assert user_of(value) == user
    assert user_of(value, now_s=EXPIRY_S - 0.1) == user
    assert user_of(value, now_s=EXPIRY_S) is None


@each_case(
    ("key", "users"),
    [
        pytest.param(new_key(), (ANN, BOB), id="other key"),
        pytest.param(KEY, (User(name="ann", token="c" * 16), BOB), id="new token"),
        pytest.param(KEY, (User(name="ann2", token="a" * 16), BOB), id="new name"),
        pytest.param(KEY, (BOB,), id="removed user"),
        # Part of the token of the cookie is part of the name, or the reverse.
        pytest.param(KEY, (User(name="anna", token="a" * 15),), id="other division of name and token"),
    ],
)
def test_cookie_of_another_key_or_user_is_refused(key: bytes, users: tuple[User, ...]) -> None:
    assert user_of(session_value(key, ANN, EXPIRY_S), *users) is None


def test_role_is_that_of_the_settings_and_not_of_the_login() -> None:
    promoted = User(name="ann", token="a" * 16, role="operator")

    assert user_of(session_value(KEY, ANN, EXPIRY_S), promoted) == promoted


@each_case("index", range(len(session_value(KEY, ANN, EXPIRY_S))))
def test_cookie_with_another_character_is_refused(index: int) -> None:
    value = session_value(KEY, ANN, EXPIRY_S)
    other = "1" if value[index] != "1" else "2"

    assert user_of(value[:index] + other + value[index + 1 :]) is None


@each_case(
    "value",
    [
        "",
        ".",
        "x",
        f"{EXPIRY_S}",
        f"{EXPIRY_S}.",
        f"-1.{'0' * 64}",
        f"{'9' * 5000}.{'0' * 64}",
        f"{EXPIRY_S}.{'é' * 64}",
        f"\uff11{EXPIRY_S}.{'0' * 64}",
        session_value(KEY, ANN, EXPIRY_S) + "\n",
        session_value(KEY, ANN, EXPIRY_S).upper() + "A",
    ],
)
def test_text_that_is_no_cookie_is_refused(value: str) -> None:
    assert user_of(value) is None


def test_cookie_reveals_neither_name_nor_token() -> None:
    value = session_value(KEY, ANN, EXPIRY_S)

    assert ANN.token not in value
    assert ANN.name not in value


def test_key_is_random_stays_the_same_and_is_private(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()

    key = load_key(tmp_path)

    assert len(key) == KEY_BYTES
    assert load_key(tmp_path) == key
    assert load_key(other) != key
    assert (tmp_path / KEY_NAME).stat().st_mode & 0o777 == FILE_MODE


def test_receivers_with_the_same_setting_accept_each_others_sessions(tmp_path: Path) -> None:
    text = "random text of 32 characters at least"
    cookie = session_value(load_key(tmp_path / "a", text), ANN, EXPIRY_S)

    assert user_of(cookie, key=load_key(tmp_path / "b", text)) == ANN
    assert user_of(cookie, key=load_key(tmp_path / "b", f"{text}.")) is None
    assert not list(tmp_path.iterdir())


@each_case("size_bytes", [0, KEY_BYTES - 1, KEY_BYTES + 1])
def test_damaged_key_is_replaced(tmp_path: Path, size_bytes: int) -> None:
    (tmp_path / KEY_NAME).write_bytes(b"\0" * size_bytes)

    key = load_key(tmp_path)

    assert len(key) == KEY_BYTES
    assert key.strip(b"\0")
    assert load_key(tmp_path) == key


def test_key_that_cannot_be_stored_is_random_and_lasts_for_this_process(tmp_path: Path) -> None:
    fault = DiskFault(WRITE_CALLS, 1, is_permanent=True, error=lambda: OSError(errno.ENOSPC, "disk full"))
    with capture_logs() as logged, process_with(fault):
        keys = load_key(tmp_path), load_key(tmp_path)

    assert len(keys[0]) == KEY_BYTES
    assert keys[0] != keys[1]
    assert not (tmp_path / KEY_NAME).exists()
    assert [line["event"] for line in logged] == ["session key cannot be stored"]
    assert not any(keys[0].hex() in str(line) for line in logged)
