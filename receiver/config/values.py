"""Conversion of one value to a setting: sizes, secrets read from files, paths, numbers given as text.

Invariant: the result has the right type and is in its range.
Never: puts a secret into a message. Messages quote the actual value of other settings only.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Literal, get_args, get_origin

import msgspec

from receiver.config.ranges import ONLY_WHITE_SPACE, range_problem
from receiver.config.sources import RawValue
from receiver.settings import GIB, KIB, MIB
from receiver.sizes import size_text

SECRET_FILE_BYTES_MAX = 64 * KIB
FOUND_CHARS_MAX = 100
"""Maximum length of a wrong value that a message quotes."""

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
"""Our name for each type name in msgspec's messages."""


class ValueProblem(Exception):  # noqa: N818 - collected and reported, never raised out of the loader
    """A value that cannot be used. The text has the actual and the expected value."""


def read(raw_value: RawValue, warnings: list[str]) -> object:
    """Return the value of the setting. Raises `ValueProblem`."""
    if raw_value.setting_key.form == "secret":
        return _secrets(raw_value, warnings)
    if raw_value.setting_key.form == "path":
        return _path(raw_value)
    if raw_value.setting_key.form == "bytes" and isinstance(raw_value.raw, str):
        return _converted(size_bytes(raw_value.raw), raw_value)
    return _converted(_as_list(raw_value) if raw_value.setting_key.is_list else raw_value.raw, raw_value)


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
    # As integers where possible: a float is not exact above 2**53.
    return int(number) * unit if "." not in number else int(bytes_exact)


def _converted(raw: object, raw_value: RawValue) -> object:
    try:
        # Text sources write numbers as text; in TOML, a number in quotes is a mistake.
        value = msgspec.convert(raw, raw_value.setting_key.type, strict=not raw_value.is_text)
    except msgspec.ValidationError as error:
        expected = _in_words(str(error).partition(" - at ")[0])
        if get_origin(raw_value.setting_key.type) is Literal:
            expected = f"expected one of {', '.join(map(repr, get_args(raw_value.setting_key.type)))}"
        shown = str(raw).lower() if isinstance(raw, bool) else repr(raw)
        # A secret of the wrong type is still a secret.
        actual = "" if raw_value.setting_key.form == "secret" else f" is {_cut(shown)};"
        raise ValueProblem(f"{actual} {expected}".strip()) from error
    if problem := range_problem(raw_value.setting_key, value):
        raise ValueProblem(problem)
    return value


def _cut(text: str) -> str:
    return text if len(text) <= FOUND_CHARS_MAX else f"{text[:FOUND_CHARS_MAX]}…"


def _in_words(message: str) -> str:
    """Replace the type names in a message of msgspec, such as "Expected `int | null`, got `str`"."""
    text = re.sub(r"`([^`]+)`", lambda match: _type_text(match[1]), message).replace(", got ", ", found ")
    return text[:1].lower() + text[1:]


def _type_text(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))


def _as_list(raw_value: RawValue) -> object:
    """Split a list given as text: a JSON array, or separated by commas."""
    raw = raw_value.raw
    if not (raw_value.is_text and isinstance(raw, str)):
        return raw
    if raw.lstrip().startswith("["):
        try:
            return json.loads(raw)
        # Deeply nested JSON ends in a `RecursionError`.
        except (ValueError, RecursionError) as error:
            raise ValueProblem('is not a JSON array; expected ["a", "b"], or a, b') from error
    return [part.strip() for part in raw.split(",") if part.strip()]


def _path(raw_value: RawValue) -> object:
    text = _converted(raw_value.raw, raw_value)
    # Empty means that no path is set, so it must not become the directory itself.
    if not isinstance(text, str) or text in ("", "."):
        return text
    return str(_resolved(raw_value.directory, text))


def _resolved(directory: Path, name: str) -> Path:
    # The operating system cannot represent it, and `open` would raise another kind of error.
    if "\0" in name:
        raise ValueProblem("contains a control character; expected text without")
    try:
        return directory / Path(name).expanduser()
    except RuntimeError as error:
        raise ValueProblem(f"is {_cut(repr(name))}; expected a path, or ~ of an existing user") from error


def _secrets(raw_value: RawValue, warnings: list[str]) -> object:
    """Return a secret, or several, from the value itself or from the files that contain them."""
    if raw_value.form.spelling == "value":
        return _converted(_as_list(raw_value) if raw_value.setting_key.is_list else raw_value.raw, raw_value)
    if raw_value.form.spelling == "one":
        return _converted([raw_value.raw], raw_value)
    names = _as_list(raw_value) if raw_value.form.spelling == "files" else [raw_value.raw]
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueProblem("is not a file name; expected the path of a file that contains the secret")
    secrets = [_read_secret(_resolved(raw_value.directory, name), warnings) for name in names]
    return tuple(secrets) if raw_value.setting_key.is_list else secrets[0]


def _read_secret(file: Path, warnings: list[str]) -> str:
    try:
        with file.open("rb") as opened:
            # One byte more than allowed shows that a file is too long, also if it is /dev/zero.
            content = opened.read(SECRET_FILE_BYTES_MAX + 1)
            mode = file.stat().st_mode
    except OSError as error:
        raise ValueProblem(f"names '{file}', which cannot be read: {error.strerror}") from error
    if len(content) > SECRET_FILE_BYTES_MAX:
        limit = size_text(SECRET_FILE_BYTES_MAX)
        raise ValueProblem(f"names '{file}', which is over {limit}; expected a secret")
    if mode & stat.S_IROTH:
        warnings.append(f"secret file '{file}' is readable by everyone; expected mode 0600 or 0640")
    return _secret_text(content, file)


def _secret_text(content: bytes, file: Path) -> str:
    try:
        # Editors and `echo` end a file with a newline. Other white space may belong to the secret.
        secret = content.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueProblem(f"names '{file}', which is not UTF-8; expected a secret in UTF-8 text") from error
    if not secret:
        raise ValueProblem(f"names '{file}', which is empty; expected a secret")
    if secret.isspace():
        raise ValueProblem(f"names '{file}', which {ONLY_WHITE_SPACE}")
    return secret
