"""The text printed at the start: addresses, how to send a first trace, how to read it back.

Never: a secret. Where a token is required, the line reads it from the shell.
"""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path

from receiver.settings import Drain, Settings
from receiver.supervisor.certificate import CA_NAME
from receiver.supervisor.data_dir import State


def welcome(settings: Settings, state: State, config: Path | None = None) -> str:
    """For a human who has just started it. `config`: the file that was read, if any."""
    lines = [
        f"endpoint   {state.urls['listen']}{drain.path}   (drain {drain.name})" for drain in settings.drain
    ]
    lines += [f"admin      {state.urls['admin']}/readyz?verbose", f"API        {state.urls['api']}"]
    lines += [*_trust_note(settings), ""]
    drain = next((one for one in settings.drain if not one.signature_header), None)
    if drain is None:
        lines += [
            "every drain asks for signed bodies: send a first trace from the platform that signs them",
            "",
        ]
    else:
        lines += first_trace(settings, drain, state.urls["listen"], config)
    return "\n".join(lines)


def first_trace(settings: Settings, drain: Drain, url: str, config: Path | None = None) -> list[str]:
    """A curl line with a valid trace of now, and the line that reads it back."""
    trace_id = secrets.token_hex(16)
    command = ["curl", "-sS", f"{url}{drain.path}", "-H", "content-type: application/json"]
    quoted = [*(shlex.quote(word) for word in command), *_credentials(drain), *_trust(settings)]
    body = json.dumps(_request(trace_id, time.time_ns()), separators=(",", ":"))
    by_file = ["--config", str(config)] if config else []
    read_back = [*_command(), "trace", trace_id, *by_file, "--data", settings.data_dir]
    return [
        "send a first trace:",
        f"  {' '.join(quoted)} -d {shlex.quote(body)}",
        "and read it back:",
        f"  {' '.join(shlex.quote(word) for word in read_back)}",
        "",
    ]


def _credentials(drain: Drain) -> list[str]:
    if not drain.tokens:
        return []
    bearer = "Bearer " if drain.header.lower() == "authorization" else ""
    return ["-H", f'"{drain.header}: {bearer}$TOKEN"']


def _trust_note(settings: Settings) -> list[str]:
    """Return the lines that say how exporters trust the self-signed certificate."""
    if not settings.tls.self_signed:
        return []
    return [f"trust      OTEL_EXPORTER_OTLP_CERTIFICATE={shlex.quote(_ca_file(settings))}"]


def _trust(settings: Settings) -> list[str]:
    return ["--cacert", shlex.quote(_ca_file(settings))] if settings.tls.self_signed else []


def _ca_file(settings: Settings) -> str:
    return str(Path(settings.tls.cert_file).with_name(CA_NAME).absolute())


def _command() -> list[str]:
    """How this program is called here."""
    if shutil.which("trace-drain"):
        return ["trace-drain"]
    beside = Path(sys.executable).with_name("trace-drain")
    return [_short(beside)] if beside.exists() else [_short(Path(sys.executable)), "-m", "receiver.cli"]


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _request(trace_id: str, now_ns: int) -> dict[str, object]:
    span = {
        "traceId": trace_id,
        "spanId": secrets.token_hex(8),
        "name": "first trace",
        "kind": 2,
        "startTimeUnixNano": str(now_ns - 20_000_000),
        "endTimeUnixNano": str(now_ns),
        "attributes": [_attribute("greeting", "hello")],
    }
    resource = [_attribute("service.name", "curl"), _attribute("platform.projectId", "prj_first")]
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"spans": [span]}]}]}


def _attribute(key: str, value: str) -> dict[str, object]:
    return {"key": key, "value": {"stringValue": value}}
