"""Conversion of one given value to a setting: sizes, secrets read from files, paths, numbers given as text.

Invariant: the result has the right type and is in its range.
Never: a secret in a message. Messages quote the actual value of other settings only.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Literal, get_args, get_origin

import msgspec

from receiver.config.ranges import ONLY_WHITE_SPACE, range_problem
from receiver.config.sources import Given
from receiver.settings import GIB, KIB, MIB
from receiver.sizes import size_text

SECRET_FILE_BYTES_MAX = 64 * KIB
FOUND_CHARS_MAX = 100
"""Longest quote of a wrong value in a message."""

_SIZE = re.compile(r"(\d+(?:_\d+)*(?:\.\d+)?)\s*([A-Za-z]*)")
_UNITS = {
    "": 1,
    "B": 1,
    "KB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "TB": 1_000_000_000_000,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": 1024 * GIB,
}


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "date": "a date",
    "time": "a time",
    "datetime": "a date and time",
    "null": "nothing",
}
"""Type name in msgspec's messages → in ours."""


class ValueProblem(Exception):  # noqa: N818 - collected and reported, never raised out of the loader
    """A value cannot be used. The text names the actual and the expected value."""


def read(given: Given, warnings: list[str]) -> object:
    """Return the value of the setting. Raises `ValueProblem`."""
    if given.setting_key.form == "secret":
        return _secrets(given, warnings)
    if given.setting_key.form == "path":
        return _path(given)
    if given.setting_key.form == "bytes" and isinstance(given.raw, str):
        return _converted(size_bytes(given.raw), given)
    raw = _parsed_list(given.raw) if given.setting_key.is_list and given.is_text else given.raw
    return _converted(raw, given)


def size_bytes(text: str) -> int:
    """Parse `8GiB`, `64 MiB`, `512 MB` or a whole number. Raises `ValueProblem`."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match.group(2).upper()) if match else None
    if match is None or unit is None:
        raise ValueProblem(f"is {_cut(repr(text))}; expected a size such as 8GiB, 512MB or 4096")
    number = match.group(1).replace("_", "")
    bytes_exact = float(number) * unit
    if not bytes_exact.is_integer():
        raise ValueProblem(f"is {_cut(repr(text))}; expected a whole number of bytes")
    return int(number) * unit if "." not in number else int(bytes_exact)


def _converted(raw: object, given: Given) -> object:
    try:
        value = msgspec.convert(raw, given.setting_key.type, strict=not given.is_text)
    except msgspec.ValidationError as reason:
        expected = _in_words(str(reason).partition(" - at ")[0])
        if get_origin(given.setting_key.type) is Literal:
            expected = f"expected one of {', '.join(map(repr, get_args(given.setting_key.type)))}"
        shown = str(raw).lower() if isinstance(raw, bool) else repr(raw)
        actual = "" if given.setting_key.form == "secret" else f" is {_cut(shown)};"
        raise ValueProblem(f"{actual} {expected}".strip()) from reason
    if problem := range_problem(given.setting_key, value):
        raise ValueProblem(problem)
    return value


def _cut(text: str) -> str:
    return text if len(text) <= FOUND_CHARS_MAX else f"{text[:FOUND_CHARS_MAX]}…"


def _in_words(message: str) -> str:
    """Replace the type names in msgspec's "Expected `int | null`, got `str`"."""
    text = re.sub(r"`([^`]+)`", lambda match: _type_text(match[1]), message).replace(", got ", ", found ")
    return text[:1].lower() + text[1:]


def _type_text(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))


def _parsed_list(raw: object) -> object:
    """Split a list given as text: a JSON array, or separated by commas."""
    if not isinstance(raw, str):
        return raw
    if raw.lstrip().startswith("["):
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as reason:
            raise ValueProblem('is not a JSON array; expected ["a", "b"], or a, b') from reason
    return [part.strip() for part in raw.split(",") if part.strip()]


def _path(given: Given) -> object:
    text = _converted(given.raw, given)
    if not isinstance(text, str) or text in ("", "."):
        return text
    return str(_resolved(given.directory, text))


def _resolved(directory: Path, name: str) -> Path:
    if "\0" in name:
        raise ValueProblem("contains a control character; expected text without")
    try:
        return directory / Path(name).expanduser()
    except RuntimeError as reason:
        raise ValueProblem(f"is {_cut(repr(name))}; expected a path, or ~ of an existing user") from reason


def _secrets(given: Given, warnings: list[str]) -> object:
    """Return a secret, or several, from the value itself or from the files that contain them."""
    if given.spelling == "value":
        raw = _parsed_list(given.raw) if given.setting_key.is_list and given.is_text else given.raw
        return _converted(raw, given)
    if given.spelling == "one":
        return _converted([given.raw], given)
    raw = _parsed_list(given.raw) if given.spelling == "files" and given.is_text else given.raw
    names = raw if given.spelling == "files" else [raw]
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueProblem("is not a file name; expected the path of a file that contains the secret")
    secrets = [_read_secret(_resolved(given.directory, name), warnings) for name in names]
    return tuple(secrets) if given.setting_key.is_list else secrets[0]


def _read_secret(file: Path, warnings: list[str]) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(SECRET_FILE_BYTES_MAX + 1)
            mode = file.stat().st_mode
    except OSError as reason:
        raise ValueProblem(f"names '{file}', which cannot be read: {reason.strerror}") from reason
    if len(content) > SECRET_FILE_BYTES_MAX:
        limit = size_text(SECRET_FILE_BYTES_MAX)
        raise ValueProblem(f"names '{file}', which is over {limit}; expected a secret")
    if mode & stat.S_IROTH:
        warnings.append(f"secret file '{file}' is readable by everyone; expected mode 0600 or 0640")
    return _secret_text(content, file)


def _secret_text(content: bytes, file: Path) -> str:
    try:
        secret = content.decode().rstrip("\r\n")
    except UnicodeDecodeError as reason:
        raise ValueProblem(f"names '{file}', which is not UTF-8; expected a secret in text") from reason
    if not secret:
        raise ValueProblem(f"names '{file}', which is empty; expected a secret")
    if secret.isspace():
        raise ValueProblem(f"names '{file}', which {ONLY_WHITE_SPACE}")
    return secret
