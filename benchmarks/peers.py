"""The compared receivers: how each is built, started and configured to write to the sink.

Peers keep their defaults, except for the settings that select the sink. The durable Collector has a synced
queue on disk and no batch processor before it, so that an acknowledged request survives a kill.
"""

from __future__ import annotations

import compileall
import json
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import trustme

import receiver
from benchmarks.processes import descendants, free_port, started
from benchmarks.sink import Sink

HERE = Path(__file__).parent
ROOT = HERE.parent
BUILT = HERE / ".peers"
"""Directory for downloaded and built peers; not committed."""
ROTEL = "0.0.1a15"
OTELCOL = "0.161.0"
READY_S = 30.0
T = TypeVar("T")


class MeasurementError(Exception):
    """A measurement is impossible: a peer cannot be built, started or loaded, or a tool is missing."""


@dataclass(frozen=True)
class Certificate:
    """Files of a certificate for 127.0.0.1."""

    cert_file: Path
    key_file: Path
    ca_file: Path


def make_certificate(directory: Path) -> Certificate:
    """Write a new certificate with an ECDSA key on P-256, and its CA."""
    ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
    issued = ca.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    files = Certificate(directory / "cert.pem", directory / "key.pem", directory / "ca.pem")
    ca.cert_pem.write_to_path(files.ca_file)
    issued.private_key_pem.write_to_path(files.key_file)
    for part in issued.cert_chain_pems:
        part.write_to_path(files.cert_file, append=True)
    return files


@dataclass(frozen=True)
class Environment:
    """Directory, sink and core that a peer is started with."""

    directory: Path
    sink: Sink
    core: str
    intakes: int = 1
    settings: str = ""
    """Content of the configuration file; this receiver only."""
    certificate: Certificate | None = None
    """Certificate of the endpoint; `None`: without TLS."""

    @property
    def scheme(self) -> str:
        """Scheme of the endpoint's URL."""
        return "https" if self.certificate else "http"


@dataclass(frozen=True)
class Running:
    """A running receiver that accepts requests."""

    url: str
    roles: dict[int, str]
    """Role of each process, by process id."""
    api_url: str = ""
    """Address of the API; this receiver only."""


@dataclass(frozen=True)
class Peer:
    """A receiver under comparison."""

    name: str
    version: str
    build: Callable[[], None]
    """Download or compile the peer. Raises `MeasurementError`."""
    run: Callable[[Environment], Iterator[Running]]

    @contextmanager
    def running(self, environment: Environment) -> Iterator[Running]:
        """Start the peer, yield it when it is ready, and stop it at the end of the block."""
        yield from self.run(environment)


def _compile_ours() -> None:
    """Compile to bytecode, as an installation does; otherwise every start might compile again."""
    compileall.compile_dir(ROOT / "receiver", quiet=1)


def _ours(environment: Environment) -> Iterator[Running]:
    return run_receiver(
        environment.directory,
        f"http://127.0.0.1:{environment.sink.http_port}/otel",
        environment.core,
        ("--intakes", str(environment.intakes)),
        environment.settings + _tls_settings(environment.certificate),
    )


def _tls_settings(certificate: Certificate | None) -> str:
    if certificate is None:
        return ""
    return f'[tls]\ncert_file = "{certificate.cert_file}"\nkey_file = "{certificate.key_file}"\n'


def run_receiver(
    directory: Path, store: str, core: str, options: Sequence[str] = (), settings: str = ""
) -> Iterator[Running]:
    """Start this receiver with a store, yield it when it is ready, and stop it at the end."""
    config = directory / "trace-drain.toml"
    config.write_text(settings)
    command = [
        *(sys.executable, "-m", "receiver.cli", "serve", "--data", str(directory / "data")),
        *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0"),
        *("--store", store, "--config", str(config), *options),
    ]
    with started(command, directory / "log", core=core, cwd=ROOT) as process:
        state = _wait_until_ready(lambda: state_of(directory / "data", process.pid), directory, process)
        pids = state["pids"]
        roles = {process.pid: "supervisor", **dict.fromkeys(pids["intake"], "intake"), pids["store"]: "store"}
        _wait_until_ready(lambda: _connect(int(state["listen"].rpartition(":")[2])), directory, process)
        yield Running(state["urls"]["listen"], roles, state["urls"]["api"])


def state_of(data: Path, supervisor: int) -> dict[str, Any]:
    """Read receiver.json. Raise `ValueError` if an earlier receiver, killed since, wrote the file."""
    state: dict[str, Any] = json.loads((data / "receiver.json").read_text())
    if state["pids"]["supervisor"] != supervisor:
        raise ValueError(
            f"receiver.json was written by process {state['pids']['supervisor']}; expected {supervisor}"
        )
    return state


def _rotel(environment: Environment) -> Iterator[Running]:
    if environment.certificate:
        raise MeasurementError("Rotel's OTLP receiver has no TLS")
    http, grpc = free_port(), free_port()
    command = [
        *(str(_rotel_program()), "start", "--otlp-http-endpoint", f"127.0.0.1:{http}"),
        *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--exporter", "clickhouse"),
        *("--clickhouse-exporter-endpoint", f"http://127.0.0.1:{environment.sink.http_port}"),
        *(
            "--pid-file",
            str(environment.directory / "pid"),
            "--log-file",
            str(environment.directory / "rotel.log"),
        ),
    ]
    with started(command, environment.directory / "log", core=environment.core) as process:
        _wait_until_ready(lambda: _connect(http), environment.directory, process)
        yield Running(
            f"http://127.0.0.1:{http}/v1/traces",
            dict.fromkeys([process.pid, *descendants(process.pid)], "rotel"),
        )


def _rotel_program() -> Path:
    programs = list((BUILT / "rotel").glob("lib/python*/site-packages/rotel/rotel-agent"))
    if not programs:
        raise MeasurementError("the rotel wheel contains no rotel-agent program")
    return programs[0]


def _build_rotel() -> None:
    if not (BUILT / "rotel").exists():
        venv.create(BUILT / "rotel", with_pip=True)
    _run([str(BUILT / "rotel/bin/pip"), "install", "--quiet", f"rotel=={ROTEL}"])
    _rotel_program()


def _build_otelcol() -> None:
    BUILT.mkdir(exist_ok=True)
    _run(["go", "build", "-ldflags=-s -w", "-o", str(BUILT / "otelcol"), "."], cwd=HERE / "otelcol")


def _otelcol(environment: Environment, queue: str, extension: str, processors: str) -> Iterator[Running]:
    http = free_port()
    (environment.directory / "queue").mkdir()
    config = environment.directory / "otelcol.yaml"
    config.write_text(
        _OTELCOL.format(
            http=http,
            tcp=environment.sink.tcp_port,
            queue=queue,
            extension=extension.format(directory=environment.directory / "queue"),
            extensions="[file_storage]" if extension else "[]",
            processors=processors,
            tls=_OTELCOL_TLS.format(certificate=environment.certificate) if environment.certificate else "",
        )
    )
    command = [str(BUILT / "otelcol"), "--config", str(config)]
    with started(command, environment.directory / "log", core=environment.core) as process:
        _wait_until_ready(lambda: _connect(http), environment.directory, process)
        url = f"{environment.scheme}://127.0.0.1:{http}/v1/traces"
        yield Running(url, {process.pid: "otelcol"})


_OTELCOL = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{http}"{tls}}}}}}}}}
processors: {{batch: {{}}}}
exporters:
  clickhouse:
    endpoint: "tcp://127.0.0.1:{tcp}"
    database: otel
    sending_queue: {queue}
extensions: {{{extension}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  extensions: {extensions}
  pipelines: {{traces: {{receivers: [otlp], processors: {processors}, exporters: [clickhouse]}}}}
"""
_OTELCOL_TLS = ', tls: {{cert_file: "{certificate.cert_file}", key_file: "{certificate.key_file}"}}'
_ON_DISK = "file_storage: {{directory: '{directory}', fsync: true}}"


def _otelcol_memory(environment: Environment) -> Iterator[Running]:
    return _otelcol(environment, "{}", "", "[batch]")


def _otelcol_durable(environment: Environment) -> Iterator[Running]:
    return _otelcol(environment, "{storage: file_storage}", _ON_DISK, "[]")


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    except OSError as error:
        raise MeasurementError(f"'{command[0]}' cannot be run: {error.strerror}") from error
    if result.returncode:
        last = (result.stderr or result.stdout).strip().splitlines()[-1:]
        raise MeasurementError(
            f"'{Path(command[0]).name}' exited with {result.returncode}: {' '.join(last)[:300]}"
        )


def _connect(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


def _wait_until_ready(is_ready: Callable[[], T], directory: Path, process: subprocess.Popen[bytes]) -> T:
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            return is_ready()
        except (OSError, ValueError, KeyError) as error:
            if time.monotonic() > deadline_s or process.poll() is not None:
                last_line = (directory / "log").read_text(errors="replace").strip().splitlines()[-1:]
                raise MeasurementError(
                    f"receiver is not ready; last log line: {' '.join(last_line)[:500]}"
                ) from error
            time.sleep(0.02)


PEERS = (
    Peer("ours", receiver.__version__, _compile_ours, _ours),
    Peer("rotel", ROTEL, _build_rotel, _rotel),
    Peer("otelcol", OTELCOL, _build_otelcol, _otelcol_memory),
    Peer("otelcol-durable", OTELCOL, _build_otelcol, _otelcol_durable),
)
