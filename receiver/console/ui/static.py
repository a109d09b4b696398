"""Style sheet and scripts of the pages. A URL has a digest of the content, so browsers keep the file."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

PREFIX: Final = "/static"
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
HEADERS: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


class StaticFile(NamedTuple):
    """A file with its URL."""

    url: str
    content_type: str
    body: bytes


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by name. One digest for all: a module imports others by their relative URLs."""
    bodies = {
        entry.name: entry.read_bytes()
        for entry in sorted(
            files("receiver.console.ui").joinpath("static").iterdir(), key=lambda entry: entry.name
        )
        if entry.name.rpartition(".")[2] in _TYPES
    }
    digest = hashlib.sha256(b"\0".join(bodies.values())).hexdigest()[:16]
    return {
        name: StaticFile(f"{PREFIX}/{digest}/{name}", _TYPES[name.rpartition(".")[2]], body)
        for name, body in bodies.items()
    }


def url_of(name: str) -> str:
    """Return the URL of a file."""
    return static_files()[name].url
