"""Tests of the supervisor with fake children: restarts, reloads, stops, admin port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from receiver import __version__
from tests.supervisor.supervised import WAIT_S, Supervised, is_alive, wait_until
from tests.support.cases import each_case


def test_receiver_starts_and_stops_its_processes_in_order_and_announces_itself(
    supervised: Supervised,
) -> None:
    supervised.configure("intakes = 2")

    supervised.start()

    state = supervised.state()
    assert supervised.process
    assert state["pids"]["supervisor"] == supervised.process.pid
    assert supervised.send_command() in {str(pid) for pid in state["pids"]["intake"]}
    assert supervised.send_command(name="api") == str(state["pids"]["store"])
    assert state["urls"]["listen"] == f"http://{state['listen']}"
    assert len(state["pids"]["intake"]) == 2
    assert supervised.events()[2:] == ["store start 0"]
    assert (supervised.directory / "receiver.json").stat().st_mode & 0o777 == 0o600
    assert f"curl -sS http://{state['listen']}/v1/traces" in supervised.log
    data, config = supervised.directory, supervised.directory / "trace-drain.toml"
    assert f" --config {config} --data {data}" in supervised.log

    supervised.signal(signal.SIGTERM)

    assert supervised.exit_code() == 0
    events = [event for event in supervised.events() if "start" not in event]
    assert sorted(events[:2]) == ["intake-0 seal", "intake-1 seal"]
    assert events[2:4] == ["store stop", "store stopped"]
    assert sorted(events[4:]) == ["intake-0 stop", "intake-0 stopped", "intake-1 stop", "intake-1 stopped"]
    assert not (supervised.directory / "receiver.json").exists()
    assert '"error"' not in supervised.log


def test_receiver_json_is_written_as_soon_as_the_disk_allows(supervised: Supervised) -> None:
    stale = supervised.directory / "receiver.json"
    stale.write_text("{}")
    (supervised.directory / ".receiver.json.tmp").mkdir()
    supervised.launch()
    wait_until(lambda: '"ready"' in supervised.log)
    admin = json.loads(next(line for line in supervised.log.splitlines() if '"ready"' in line))["admin"]
    wait_until(
        lambda: "store process: ok" in urllib.request.urlopen(f"{admin}/readyz?verbose").read().decode()
    )
    was_removed = not stale.exists()

    (supervised.directory / ".receiver.json.tmp").rmdir()

    wait_until(supervised.is_ready)
    assert was_removed
    assert "receiver.json is written again" in supervised.log


def test_connections_and_counters_outlive_a_killed_intake(supervised: Supervised) -> None:
    supervised.start()
    (killed,) = supervised.state()["pids"]["intake"]
    metric = 'trace_drain_deliveries_total{drain="default",status="200"}'
    supervised.send_command()
    wait_until(lambda: f"{metric} 1.0" in supervised.admin("/metrics")[1])

    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not is_alive(killed))
    answered_by = [int(supervised.send_command()) for _ in range(5)]

    assert killed not in answered_by
    wait_until(lambda: supervised.state()["pids"]["intake"] == [answered_by[0]])
    assert supervised.events()[-1] == "intake-0 start 1"
    wait_until(lambda: f"{metric} 6.0" in supervised.admin("/metrics")[1])


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
    assert "not finished in 0.2 s" in supervised.log


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


def test_modules_of_the_working_directory_are_not_imported(supervised: Supervised) -> None:
    """As in a checkout, whose folder `receiver` lacks the built core."""
    for name in ("receiver", "tests"):
        (supervised.directory / name).mkdir()
        (supervised.directory / name / "__init__.py").write_text("raise ImportError('a foreign module')")

    supervised.start()

    assert "a foreign module" not in supervised.log


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


def test_sighup_reloads_also_for_later_starts_and_an_invalid_configuration_is_refused(
    supervised: Supervised,
) -> None:
    supervised.start()

    supervised.configure("post_root = false\nintakes = 2")
    supervised.signal(signal.SIGHUP)
    wait_until(lambda: {"intake-0 reload False", "store reload False"} <= set(supervised.events()))
    supervised.configure("post_root = 3")
    supervised.signal(signal.SIGHUP)
    wait_until(lambda: 'reloads_total{outcome="refused"} 1.0' in supervised.admin("/metrics")[1])

    assert "cannot be used: 'post_root' (file " in supervised.log
    assert len([event for event in supervised.events() if "reload" in event]) == 2
    (killed,) = supervised.state()["pids"]["intake"]
    os.kill(killed, signal.SIGKILL)
    supervised.configure("[[drain]]\nname = 'other'")
    supervised.signal(signal.SIGHUP)
    wait_until(lambda: supervised.events()[-1] in ("intake-0 reload True", "store reload True"))


def test_only_the_intake_checks_decide_readiness(supervised: Supervised) -> None:
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


def test_admin_port_serves_only_its_paths(supervised: Supervised) -> None:
    supervised.start()

    @each_case(
        ("path", "status", "part"),
        [
            ("/livez", 200, "ok\n"),
            ("/version", 200, f'{{"version":"{__version__}","core":'),
            ("/metrics", 200, 'trace_drain_process_up{process="intake-0"} 1.0'),
            ("/", 404, "\n"),
            ("/v1/traces", 404, "\n"),
        ],
    )
    def is_served(path: str, status: int, part: str) -> None:
        answer_status, text = supervised.admin(path)

        assert (answer_status, part in f"{text}\n") == (status, True)
        assert status != 200 or text.endswith("\n")

    is_served()


def test_systemd_sockets_are_used(supervised: Supervised) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    supervised.configure("intakes = 2")

    supervised.start(SOCKET_FOR_SYSTEMD=str(port))

    assert supervised.state()["listen"] == f"127.0.0.1:{port}"
    assert int(supervised.send_command()) in supervised.state()["pids"]["intake"]
