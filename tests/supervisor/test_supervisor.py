"""Tests of the supervisor with fake children: restarts, reloads, stops, admin port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from receiver import __version__

WAIT_S = 30.0
BASE_CONFIG = (
    'listen = "127.0.0.1:0"\nadmin_listen = "127.0.0.1:0"\napi_listen = "127.0.0.1:0"\nlog_format = "json"\n'
)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"the condition did not hold within {WAIT_S:g} s"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Supervised:
    """A supervisor process with its own data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[str] | None = None
        self.configure()

    def configure(self, toml: str = "") -> None:
        (self.directory / "trace-drain.toml").write_text(BASE_CONFIG + toml)

    def start(self, silence_s: float = 30.0, **environ: str) -> None:
        self.launch(silence_s, **environ)
        wait_until(self.is_ready)

    def launch(self, silence_s: float = 30.0, **environ: str) -> None:
        command = [sys.executable, "-m", "tests.doubles.supervised", str(self.directory), str(silence_s)]
        with (self.directory / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, text=True, env={**os.environ, **environ}
            )

    def is_ready(self) -> bool:
        assert self.process
        assert self.process.poll() is None, (self.directory / "log").read_text()
        try:
            is_ours = self.state()["pids"]["supervisor"] == self.process.pid
            return is_ours and self.admin("/readyz")[0] == 200
        except OSError:
            return False

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.directory / "receiver.json").read_text())
        return state

    def admin(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.state()["urls"]["admin"] + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def send_command(self, command: str = "pid", name: str = "listen") -> str:
        with self.connect(name) as connection:
            connection.sendall(f"{command}\n".encode())
            return connection.makefile().readline().strip()

    def connect(self, name: str) -> socket.socket:
        host, _, port = self.state()[name].rpartition(":")
        return socket.create_connection((host, int(port)), timeout=WAIT_S)

    def events(self) -> list[str]:
        return (self.directory / "events").read_text().splitlines()

    def start_count(self, name: str) -> int:
        """Return how often a child process started and began its work."""
        log = (self.directory / "events").read_text() if (self.directory / "events").exists() else ""
        return log.count(f"{name} start")

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def exit_code(self) -> int:
        assert self.process
        return self.process.wait(WAIT_S)

    def children(self) -> list[int]:
        pids = self.state()["pids"]
        return [*pids["intake"], pids["store"]]

    def clean_up(self) -> None:
        """Kill the supervisor and its children if they still run."""
        if self.process and self.process.poll() is None:
            children = self.children()
            self.process.kill()
            self.process.wait()
            for pid in children:
                wait_until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    supervisor = Supervised(tmp_path)
    yield supervisor
    supervisor.clean_up()


def test_receiver_json_has_addresses_and_process_ids(supervised: Supervised) -> None:
    supervised.configure("intakes = 2")

    supervised.start()

    state = supervised.state()
    assert supervised.process
    assert state["pids"]["supervisor"] == supervised.process.pid
    assert supervised.send_command() in {str(pid) for pid in state["pids"]["intake"]}
    assert supervised.send_command(name="api") == str(state["pids"]["store"])
    assert state["urls"]["listen"] == f"http://{state['listen']}"
    assert len(state["pids"]["intake"]) == 2
    assert (supervised.directory / "receiver.json").stat().st_mode & 0o777 == 0o600


def test_receiver_json_is_written_as_soon_as_the_disk_allows(
    supervised: Supervised,
) -> None:
    stale = supervised.directory / "receiver.json"
    stale.write_text("{}")
    (supervised.directory / ".receiver.json.tmp").mkdir()
    supervised.launch()
    log = supervised.directory / "log"
    wait_until(lambda: '"ready"' in log.read_text())
    admin = json.loads(next(line for line in log.read_text().splitlines() if '"ready"' in line))["admin"]
    wait_until(
        lambda: "store process: ok" in urllib.request.urlopen(f"{admin}/readyz?verbose").read().decode()
    )
    was_removed = not stale.exists()

    (supervised.directory / ".receiver.json.tmp").rmdir()

    wait_until(supervised.is_ready)
    assert was_removed
    assert "receiver.json is written again" in log.read_text()


def test_start_prints_a_query_command_with_the_configuration_file(supervised: Supervised) -> None:
    supervised.start()

    assert f" --config {supervised.directory}/trace-drain.toml --data " in (
        (supervised.directory / "log").read_text()
    )


def test_connections_wait_while_a_killed_intake_is_replaced(supervised: Supervised) -> None:
    supervised.start()
    (killed,) = supervised.state()["pids"]["intake"]

    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not is_alive(killed))
    answered_by = [int(supervised.send_command()) for _ in range(5)]

    assert killed not in answered_by
    wait_until(lambda: supervised.state()["pids"]["intake"] == [answered_by[0]])
    assert supervised.events()[-1] == "intake-0 start 1"


def test_hung_process_is_killed_and_replaced(supervised: Supervised) -> None:
    supervised.start(silence_s=3.0)
    before = supervised.state()["pids"]["store"]

    with supervised.connect("api") as connection:
        connection.sendall(b"hang\n")
        wait_until(lambda: "store hangs" in supervised.events())
        answered_by = supervised.send_command(name="api")

    assert answered_by != str(before)
    assert not is_alive(before)
    assert 'trace_drain_process_restarts_total{process="store"} 1.0' in supervised.admin("/metrics")[1]


def test_counters_of_a_replaced_process_are_kept(supervised: Supervised) -> None:
    supervised.start()
    metric = 'trace_drain_deliveries_total{drain="default",status="200"}'
    supervised.send_command()
    wait_until(lambda: f"{metric} 1.0" in supervised.admin("/metrics")[1])

    os.kill(supervised.state()["pids"]["intake"][0], signal.SIGKILL)
    supervised.send_command()

    wait_until(lambda: f"{metric} 2.0" in supervised.admin("/metrics")[1])


def test_first_signal_seals_then_stops_the_store_process_then_the_intakes(supervised: Supervised) -> None:
    supervised.configure("intakes = 2")
    supervised.start()

    supervised.signal(signal.SIGTERM)

    assert supervised.exit_code() == 0
    events = [event for event in supervised.events() if "start" not in event]
    assert sorted(events[:2]) == ["intake-0 seal", "intake-1 seal"]
    assert events[2:4] == ["store stop", "store stopped"]
    assert sorted(events[4:]) == ["intake-0 stop", "intake-0 stopped", "intake-1 stop", "intake-1 stopped"]
    assert not (supervised.directory / "receiver.json").exists()
    assert '"error"' not in (supervised.directory / "log").read_text()


def test_second_signal_kills_all_processes(supervised: Supervised) -> None:
    (supervised.directory / "stubborn").touch()
    supervised.start()
    children = supervised.children()
    supervised.signal(signal.SIGTERM)
    wait_until(lambda: "store stop" in supervised.events())

    supervised.signal(signal.SIGINT)

    assert supervised.exit_code() == 1
    assert not any(is_alive(pid) for pid in children)


def test_process_that_exceeds_the_stop_grace_period_is_killed(supervised: Supervised) -> None:
    supervised.configure("limits.stop_grace_s = 0.2")
    (supervised.directory / "stubborn").touch()
    supervised.start()

    supervised.signal(signal.SIGTERM)

    assert supervised.exit_code() == 0
    assert "not finished in 0.2 s" in (supervised.directory / "log").read_text()


def test_children_of_a_killed_supervisor_exit_before_the_next_start(supervised: Supervised) -> None:
    supervised.start()
    orphans = supervised.children()

    supervised.signal(signal.SIGKILL)
    supervised.exit_code()
    supervised.start()

    assert not any(is_alive(pid) for pid in orphans)
    assert "store stopped" in supervised.events()
    assert supervised.send_command() == str(supervised.state()["pids"]["intake"][0])


@pytest.mark.fault("the supervisor is killed while its children hang or are still starting")
@pytest.mark.parametrize("behaviour", ["stubborn", "blocked", "slow"])
def test_children_of_a_killed_supervisor_that_hang_do_not_prevent_the_next_start(
    supervised: Supervised, behaviour: str
) -> None:
    supervised.start()
    (supervised.directory / behaviour).touch()
    if behaviour == "slow":
        os.kill(supervised.state()["pids"]["intake"][0], signal.SIGKILL)
        wait_until(lambda: "intake-0 start 1" in supervised.events())
    orphans = supervised.children()

    supervised.signal(signal.SIGKILL)
    supervised.exit_code()
    supervised.launch()
    wait_until(lambda: not any(is_alive(pid) for pid in orphans))
    (supervised.directory / behaviour).unlink()
    wait_until(supervised.is_ready)

    assert supervised.send_command() == str(supervised.state()["pids"]["intake"][0])


def test_second_receiver_on_the_data_directory_exits_and_names_the_first(supervised: Supervised) -> None:
    supervised.start()
    assert supervised.process

    second = subprocess.run(
        [sys.executable, "-m", "tests.doubles.supervised", str(supervised.directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )

    assert second.returncode == 1
    assert f"another receiver uses it (process {supervised.process.pid})" in second.stderr
    assert supervised.is_ready()


def test_sighup_reloads_and_an_invalid_configuration_is_refused(supervised: Supervised) -> None:
    supervised.start()

    supervised.configure("post_root = false\nintakes = 2")
    supervised.signal(signal.SIGHUP)
    wait_until(lambda: {"intake-0 reload False", "store reload False"} <= set(supervised.events()))
    supervised.configure("post_root = 3")
    supervised.signal(signal.SIGHUP)
    wait_until(lambda: 'reloads_total{outcome="refused"} 1.0' in supervised.admin("/metrics")[1])

    assert "cannot be used: 'post_root' (file " in (supervised.directory / "log").read_text()
    assert len([event for event in supervised.events() if "reload" in event]) == 2
    assert len(supervised.state()["pids"]["intake"]) == 1


def test_replaced_process_starts_with_the_reloaded_settings(supervised: Supervised) -> None:
    supervised.start()
    supervised.configure("post_root = false")
    supervised.signal(signal.SIGHUP)
    wait_until(lambda: "intake-0 reload False" in supervised.events())

    os.kill(supervised.state()["pids"]["intake"][0], signal.SIGKILL)
    supervised.configure("[[drain]]\nname = 'other'")
    supervised.signal(signal.SIGHUP)

    wait_until(lambda: supervised.events()[-1] in ("intake-0 reload True", "store reload True"))


def test_only_the_intake_checks_decide_readiness(
    supervised: Supervised,
) -> None:
    supervised.start()
    (supervised.directory / "journal-is-full").touch()

    wait_until(lambda: supervised.admin("/readyz")[0] == 503)

    status, text = supervised.admin("/readyz")
    assert (status, text) == (503, "[-] intake-0 journal: 8 GiB are in use\nnot ready\n")
    wait_until(lambda: "[-] store journal: 8 GiB are in use" in supervised.admin("/readyz?verbose")[1])
    assert "[+] supervisor running: ok" in supervised.admin("/readyz?verbose")[1]
    _, as_json = supervised.admin("/readyz", Accept="application/json")
    assert {
        "process": "store",
        "name": "journal",
        "reason": "8 GiB are in use",
        "decides": False,
    } in json.loads(as_json)["checks"]


@pytest.mark.parametrize(
    ("path", "status", "part"),
    [
        ("/livez", 200, "ok\n"),
        ("/version", 200, f'{{"version":"{__version__}","core":'),
        ("/metrics", 200, 'trace_drain_process_up{process="intake-0"} 1.0'),
        ("/", 404, ""),
        ("/v1/traces", 404, ""),
    ],
)
def test_admin_port_serves_only_its_paths(supervised: Supervised, path: str, status: int, part: str) -> None:
    supervised.start()

    answer_status, text = supervised.admin(path)

    assert answer_status == status
    assert part in text
    assert status != 200 or text.endswith("\n")


def test_systemd_sockets_are_used(supervised: Supervised) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    supervised.configure("intakes = 2")

    supervised.start(SOCKET_FOR_SYSTEMD=str(port))

    assert supervised.state()["listen"] == f"127.0.0.1:{port}"
    assert int(supervised.send_command()) in supervised.state()["pids"]["intake"]


def test_start_prints_commands_to_send_and_query_a_first_trace(
    supervised: Supervised,
) -> None:
    supervised.start()

    printed = (supervised.directory / "log").read_text()

    assert f"curl -sS http://{supervised.state()['listen']}/v1/traces" in printed
    assert f"--data {supervised.directory}" in printed
