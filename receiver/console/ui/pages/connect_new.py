"""Part of the page Connect that adds a drain: its settings with new secrets, and what to enter at the sender.

Never: logs or stores a secret. They are on the page once, and another request generates others.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final, Literal, NamedTuple

from msgspec import structs

from receiver.config.access import HEADER_NAME
from receiver.config.checks import problems_of
from receiver.config.load import DEFAULT_FILE, Loaded
from receiver.console.ui.view import View
from receiver.errors import MalformedBody
from receiver.settings import Drain, Settings

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
HOST: Final = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|")
SIGNATURES: Final = {"sha1": "HMAC-SHA1", "sha256": "HMAC-SHA256", "none": "none"}
SIGNATURE_DEFAULT = "sha1"
PARAMETERS: Final = ("new", "signature", "header", "host", "wait")
"""`wait`: a drain that was added, so that a reload generates no secrets."""


class NewDrain(NamedTuple):
    """A drain to add to the settings."""

    drain: Drain
    toml: str
    file: str
    """Absolute path of the settings file."""
    is_new_file: bool
    supervisor_pid: int
    host: str


def header_of(view: View) -> str:
    """Return the header of signatures: that of the parameter, or of the platform."""
    return view.query.get("header") or f"x-{view.facts.settings.resolve.preset}-signature"


def new_drain(view: View) -> NewDrain | None:
    """Return the drain to add, with new secrets; `None` if the request names none. Raises `MalformedBody`."""
    name, host, header = view.query.get("new", ""), view.query.get("host", ""), header_of(view)
    if not name:
        return None
    _require(NAME.fullmatch(name) is not None, "new", "up to 64 letters, digits, _ and -")
    _require(HOST.fullmatch(host) is not None, "host", "a host name, with a port if it is not 443")
    _require(HEADER_NAME.fullmatch(header) is not None, "header", "the name of an HTTP header")
    signature = view.one_of("signature", SIGNATURES, SIGNATURE_DEFAULT)
    drain = Drain(name=name, path=f"/v1/traces/{name}", tokens=(secrets.token_urlsafe(32),))
    if signature != "none":
        algorithm: Literal["sha1", "sha256"] = "sha256" if signature == "sha256" else "sha1"
        drain = structs.replace(
            drain,
            signature_header=header,
            signature_algorithm=algorithm,
            signature_secrets=(secrets.token_urlsafe(32),),
        )
    loaded = view.facts.loaded
    are_in_file = all(
        origin.startswith("file ") for key, origin in loaded.origins.items() if key.startswith("drain")
    )
    _require(are_in_file, "new", "drains in the settings file; those of this receiver are set elsewhere")
    if not is_configured(loaded.settings, name):
        added = structs.replace(loaded.settings, drain=(*loaded.settings.drain, drain))
        problems = set(problems_of(added)) - set(problems_of(loaded.settings))
        _require(not problems, "new", "; ".join(sorted(problems)))
    file = _file(loaded)
    is_default = not any(key.startswith("drain") for key in loaded.origins)
    return NewDrain(
        drain, _toml(drain, is_first=is_default), str(file), not file.exists(), os.getppid(), host
    )


def is_configured(settings: Settings, name: str) -> bool:
    """Return whether a drain with this name is in the settings in force."""
    return any(drain.name == name for drain in settings.drain)


def _require(is_met: bool, parameter: str, expected: str) -> None:  # noqa: FBT001 - the condition
    if not is_met:
        raise MalformedBody(f"{parameter}: expected {expected}", field=parameter)


def _file(loaded: Loaded) -> Path:
    """Return the settings file; if there is none, the file that a reload reads."""
    named = (origin.removeprefix("file ") for origin in loaded.origins.values() if origin.startswith("file "))
    return Path(next(named, DEFAULT_FILE)).absolute()


def _toml(drain: Drain, *, is_first: bool) -> str:
    """Return the table of a drain. The values need no escapes: see `NAME` and `HEADER_NAME`."""
    lines = []
    if is_first:
        # Any [[drain]] replaces the default drain, whose senders would then be answered 404.
        lines += ["# the drain without credentials that receives at /v1/traces until now", "[[drain]]"]
        lines += ['name = "default"', ""]
    lines += ["[[drain]]", f'name = "{drain.name}"', f'path = "{drain.path}"', f'token = "{drain.tokens[0]}"']
    if drain.signature_header:
        lines += [
            f'signature_header = "{drain.signature_header}"',
            f'signature_algorithm = "{drain.signature_algorithm}"',
            f'signature_secret = "{drain.signature_secrets[0]}"',
        ]
    return "\n".join(lines) + "\n"
