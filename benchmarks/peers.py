"""The receivers that are compared: how each is got, started and pointed at the sink.

Peers keep their own defaults, but for what makes them write to the sink. The durable Collector has its queue
on disk, synced, and no batch processor in front: so an acknowledged request survives a kill.
"""

from __future__ import annotations

import compileall
import json
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import receiver
from benchmarks.processes import descendants, free_port, started
from benchmarks.sink import Sink

HERE = Path(__file__).parent
ROOT = HERE.parent
BUILT = HERE / ".peers"
"""What is downloaded and built; not committed."""
ROTEL = "0.0.1a15"
OTELCOL = "0.161.0"
READY_S = 30.0
T = TypeVar("T")


class NotToBeHad(Exception):  # noqa: N818 - a verdict
    """A peer cannot be built or started here."""


@dataclass(frozen=True)
class Site:
    """What a peer is given to start with."""

    directory: Path
    sink: Sink
    core: str
    intakes: int = 1
    settings: str = ""
    """Of ours: its configuration file."""


@dataclass(frozen=True)
class Running:
    """A receiver that takes requests."""

    url: str
    roles: dict[int, str]
    """Pid → what it does."""


@dataclass(frozen=True)
class Peer:
    """One receiver."""

    name: str
    version: str
    build: Callable[[], None]
    """Raises `NotToBeHad`."""
    run: Callable[[Site], Iterator[Running]]

    @contextmanager
    def running(self, site: Site) -> Iterator[Running]:
        """Started and ready, until the block ends."""
        yield from self.run(site)


def _compile_ours() -> None:
    """Make bytecode, as an installation does: where Python may not keep it, every start makes its own."""
    compileall.compile_dir(ROOT / "receiver", quiet=1)


def _ours(site: Site) -> Iterator[Running]:
    config = site.directory / "trace-drain.toml"
    config.write_text(site.settings)
    command = [
        *(sys.executable, "-m", "receiver.cli", "serve", "--data", str(site.directory / "data")),
        *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0"),
        *("--store", f"http://127.0.0.1:{site.sink.http_port}/otel", "--intakes", str(site.intakes)),
        *("--config", str(config)),
    ]
    with started(command, site.directory / "log", core=site.core, cwd=ROOT) as process:
        state = _eventually(lambda: state_of(site.directory / "data", process.pid), site, process)
        pids = state["pids"]
        roles = {process.pid: "supervisor", **dict.fromkeys(pids["intake"], "intake"), pids["store"]: "store"}
        _eventually(lambda: _connect(int(state["listen"].rpartition(":")[2])), site, process)
        yield Running(state["urls"]["listen"], roles)


def state_of(data: Path, supervisor: int) -> dict[str, Any]:
    """What a receiver says of itself. `ValueError`: an earlier one said it, and was killed."""
    state: dict[str, Any] = json.loads((data / "receiver.json").read_text())
    if state["pids"]["supervisor"] != supervisor:
        raise ValueError(f"receiver.json is of process {state['pids']['supervisor']}; expected {supervisor}")
    return state


def _rotel(site: Site) -> Iterator[Running]:
    http, grpc = free_port(), free_port()
    command = [
        *(str(_rotel_program()), "start", "--otlp-http-endpoint", f"127.0.0.1:{http}"),
        *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--exporter", "clickhouse"),
        *("--clickhouse-exporter-endpoint", f"http://127.0.0.1:{site.sink.http_port}"),
        *("--pid-file", str(site.directory / "pid"), "--log-file", str(site.directory / "rotel.log")),
    ]
    with started(command, site.directory / "log", core=site.core) as process:
        _eventually(lambda: _connect(http), site, process)
        yield Running(
            f"http://127.0.0.1:{http}/v1/traces",
            dict.fromkeys([process.pid, *descendants(process.pid)], "rotel"),
        )


def _rotel_program() -> Path:
    found = list((BUILT / "rotel").glob("lib/python*/site-packages/rotel/rotel-agent"))
    if not found:
        raise NotToBeHad("its wheel holds no program")
    return found[0]


def _build_rotel() -> None:
    if not (BUILT / "rotel").exists():
        venv.create(BUILT / "rotel", with_pip=True)
    _run([str(BUILT / "rotel/bin/pip"), "install", "--quiet", f"rotel=={ROTEL}"])
    _rotel_program()


def _build_otelcol() -> None:
    BUILT.mkdir(exist_ok=True)
    _run(["go", "build", "-ldflags=-s -w", "-o", str(BUILT / "otelcol"), "."], cwd=HERE / "otelcol")


def _otelcol(site: Site, queue: str, extension: str, processors: str) -> Iterator[Running]:
    http = free_port()
    (site.directory / "queue").mkdir()
    config = site.directory / "otelcol.yaml"
    config.write_text(
        _OTELCOL.format(
            http=http,
            tcp=site.sink.tcp_port,
            queue=queue,
            extension=extension.format(directory=site.directory / "queue"),
            extensions="[file_storage]" if extension else "[]",
            processors=processors,
        )
    )
    command = [str(BUILT / "otelcol"), "--config", str(config)]
    with started(command, site.directory / "log", core=site.core) as process:
        _eventually(lambda: _connect(http), site, process)
        yield Running(f"http://127.0.0.1:{http}/v1/traces", {process.pid: "otelcol"})


_OTELCOL = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{http}"}}}}}}}}
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
_ON_DISK = "file_storage: {{directory: '{directory}', fsync: true}}"


def _otelcol_memory(site: Site) -> Iterator[Running]:
    return _otelcol(site, "{}", "", "[batch]")


def _otelcol_durable(site: Site) -> Iterator[Running]:
    return _otelcol(site, "{storage: file_storage}", _ON_DISK, "[]")


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    except OSError as reason:
        raise NotToBeHad(f"'{command[0]}' cannot be run: {reason.strerror}") from reason
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise NotToBeHad(f"'{Path(command[0]).name}' ended with {done.returncode}: {' '.join(last)[:300]}")


def _connect(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


def _eventually(ask: Callable[[], T], site: Site, process: subprocess.Popen[bytes]) -> T:
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            return ask()
        except (OSError, ValueError, KeyError) as reason:
            if time.monotonic() > deadline_s or process.poll() is not None:
                said = (site.directory / "log").read_text(errors="replace").strip().splitlines()[-1:]
                raise NotToBeHad(f"not ready; last said: {' '.join(said)[:500]}") from reason
            time.sleep(0.02)


PEERS = (
    Peer("ours", receiver.__version__, _compile_ours, _ours),
    Peer("rotel", ROTEL, _build_rotel, _rotel),
    Peer("otelcol", OTELCOL, _build_otelcol, _otelcol_memory),
    Peer("otelcol-durable", OTELCOL, _build_otelcol, _otelcol_durable),
)
