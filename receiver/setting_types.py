"""Types of settings, with the range and the form of their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Range:
    """Allowed values: a number from `low` to `high`, or that many characters of text or entries of a list."""

    low: float
    high: float


Bytes = Annotated[int, Meta(extra={"form": "bytes"})]
"""A size: a whole number, or text such as `8GiB` or `512 MB`."""
Secret = Annotated[str, Meta(extra={"form": "secret"}), Range(1, 64 * KIB)]
"""Never printed; `…_file` names a file that contains it."""
FilePath = Annotated[str, Meta(extra={"form": "path"}), Range(0, 4_095)]
"""Relative to the configuration file that names it, otherwise to the working directory."""
Address = Annotated[str, Range(1, 300)]
"""HOST:PORT."""
OptionalAddress = Annotated[str, Range(0, 300)]
"""HOST:PORT, or empty."""
HostName = Annotated[str, Range(1, 253)]
"""A DNS name, without a port."""
Header = Annotated[str, Range(0, 256)]
"""Name of an HTTP header."""
Attribute = Annotated[str, Range(0, 1_024)]
"""Value of an attribute, or the place of one."""
Rate = Annotated[float, Range(0, 1)]
Seconds = Annotated[float, Range(0.1, 3_600)]
Thousands = Annotated[int, Range(1, 1_000_000)]
Millions = Annotated[int, Range(1, 1_000_000_000)]
BodyBytes = Annotated[Bytes, Range(1 * KIB, 2 * GIB)]
CERTIFICATE_DAYS_MIN = 14
"""Days until the expiry of a certificate below which commands, the log and the pages warn."""
Role = Literal["viewer", "operator", "admin"]
"""What a caller of the API may do; each role may also do what the roles before it may."""


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of settings: immutable, and an unknown key is an error."""
