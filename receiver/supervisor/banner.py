"""Startup banner: addresses, a command that sends a first trace and a command that reads it back.

Never: prints a secret. If a token is required, the printed command reads it from a shell variable.
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
from receiver.supervisor.state import ReceiverState


def startup_banner(settings: Settings, state: ReceiverState, config: Path | None = None) -> str:
    """Return the text printed at the start. `config`: the configuration file that was read, if any."""
    lines = [
        f"endpoint   {state.urls['listen']}{drain.path}   (drain {drain.name})" for drain in settings.drain
    ]
    lines.append(f"admin      {state.urls['admin']}/readyz?verbose")
    if api := state.urls.get("api"):
        lines.append(f"pages      {api}   (API: {api}/docs)")
    if clickhouse := state.urls.get("clickhouse"):
        lines.append(f"clickhouse {clickhouse}   (read-only)")
    lines += [*_trust_note(settings), ""]
    # curl cannot compute a signature, so the command needs a drain without one.
    drain = next((drain for drain in settings.drain if not drain.signature_header), None)
    if drain is None:
        lines += [
            "every drain requires signed bodies: send a first trace from the platform that signs them",
            "",
        ]
    else:
        lines += first_trace(settings, drain, state.urls["listen"], config)
    return "\n".join(lines)


def first_trace(settings: Settings, drain: Drain, url: str, config: Path | None = None) -> list[str]:
    """Return a curl command that sends a trace with the current time, and the command that reads it back."""
    trace_id = secrets.token_hex(16)
    command = ["curl", "-sS", f"{url}{drain.path}", "-H", "content-type: application/json"]
    quoted = [*(shlex.quote(word) for word in command), *_credentials(drain), *_trust(settings)]
    body = json.dumps(_request(trace_id, time.time_ns()), separators=(",", ":"))
    config_option = ["--config", str(config)] if config else []
    read_back = [*_command(), "trace", trace_id, *config_option, "--data", settings.data_dir]
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
    # Double quotes, so that the shell inserts the token.
    return ["-H", f'"{drain.header}: {bearer}$TOKEN"']


def _trust_note(settings: Settings) -> list[str]:
    """Return the line that shows how exporters trust the self-signed certificate."""
    if not settings.tls.self_signed:
        return []
    return [f"trust      OTEL_EXPORTER_OTLP_CERTIFICATE={shlex.quote(_ca_file(settings))}"]


def _trust(settings: Settings) -> list[str]:
    return ["--cacert", shlex.quote(_ca_file(settings))] if settings.tls.self_signed else []


def _ca_file(settings: Settings) -> str:
    return str(Path(settings.tls.cert_file).with_name(CA_NAME).absolute())


def _command() -> list[str]:
    """Return the command line words that run this program in this environment."""
    if shutil.which("trace-drain"):
        return ["trace-drain"]
    # The program of a virtual environment that is not activated is in the directory of its interpreter.
    script = Path(sys.executable).with_name("trace-drain")
    return [_short(script)] if script.exists() else [_short(Path(sys.executable)), "-m", "receiver.cli"]


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
