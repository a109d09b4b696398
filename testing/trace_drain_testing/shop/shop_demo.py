"""Command of `make demo`: the emulator, a receiver with its pages, a drain and the shop; prints a tour.

Ends with Ctrl-C. Leaves only its directory, which has the logs of both programs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlencode

from receiver.durable.files import make_directories, open_or_create, write_durably
from trace_drain_testing.shop.shop import RELEASE_A, RELEASE_B
from trace_drain_testing.shop.shop_traffic import WEB_PROJECT

T = TypeVar("T")
Json = dict[str, Any]

START_S = 120.0
"""Timeout for the start of the programs, and for the first readable spans."""
STOP_S = 30.0
POLL_S = 0.5
ANSWER_S = 30.0
DRAIN_SECRET = "demo-drain-secret"  # noqa: S105 - of a receiver on this machine that ends with the demo
WEBHOOK_PATH = "/platform/webhooks"
MODEL = "globex/vision"
"""Model of the emulated gateway for explanations of traces."""
CONFIG_NAME = "trace-drain.toml"
LOG_LINES = 20
"""Number of lines of a log that are printed when a program ends unexpectedly."""


class DemoFailed(Exception):  # noqa: N818 - a verdict
    """A program did not start, or has ended."""


class Program(NamedTuple):
    process: subprocess.Popen[bytes]
    log: Path

    def require(self) -> None:
        if self.process.poll() is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise DemoFailed("\n".join([f"{self.log.stem} has ended:", *lines]))


class Site(NamedTuple):
    facts: Json
    """Content of the emulator's `platform.json`."""
    intake: str
    pages: str

    def control(self, path: str, body: Json) -> Json:
        """Post to the emulator's control API."""
        return dict(_json(self.facts["control_url"] + path, body))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo until Ctrl-C or SIGTERM. Return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("demo"), help="directory [demo]")
    parser.add_argument("--requests-per-s", type=float, default=2.0, help="requests of the shop [2]")
    parser.add_argument("--history-s", type=int, default=3_600, help="past time with requests [3600]")
    options = parser.parse_args(arguments)
    directory = options.data.absolute() / time.strftime("%Y%m%d-%H%M%S")
    make_directories(directory)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as stack:
            _run(stack, directory, options)
    except KeyboardInterrupt:
        print(f"\nThe demo has ended. Its data is in {directory}.")  # noqa: T201 - the command's output
        return 0
    except DemoFailed as error:
        print(f"demo: {error}", file=sys.stderr)  # noqa: T201 - as above
        return 1


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _run(stack: ExitStack, directory: Path, options: argparse.Namespace) -> NoReturn:
    print("Starting the emulated platform and the receiver.", flush=True)  # noqa: T201 - the command's output
    emulate = ["platform", "emulate", "--listen", "127.0.0.1:0", "--data", str(directory / "platform")]
    emulator = stack.enter_context(_started("emulator", emulate, directory))
    facts = _until("the emulator", lambda: _file(directory / "platform" / "platform.json"), emulator)
    # Chosen before the start, because the platform needs the URLs of webhooks and of the redirect.
    intake, pages = _free_addresses(2)
    config = _write_config(directory, facts, intake, pages)
    serve = ["serve", "--config", str(config), "--listen", intake, "--api-listen", pages]
    serve += ["--admin-listen", "127.0.0.1:0"]
    receiver = stack.enter_context(_started("receiver", serve, directory))
    site = _until("the receiver", lambda: _site(directory / "receiver", facts), emulator, receiver)
    drain = {"url": f"{site.intake}/v1/traces", "secret": DRAIN_SECRET, "format": "json", "retries": 3}
    created = site.control("/drains", drain)
    print(f"Drain {created['id']}: test events were answered {created['test_status']}.", flush=True)  # noqa: T201 - as above
    site.control("/shop", {"requests_per_s": options.requests_per_s, "history_s": options.history_s})
    verdict = _until("the comparison", lambda: _verdict(site), emulator, receiver)
    trace_id = _until("a failed trace", lambda: _failed_trace(site), emulator, receiver)
    print("\n".join(tour(site, directory, verdict, trace_id)), flush=True)  # noqa: T201 - as above
    while True:
        time.sleep(POLL_S)
        emulator.require()
        receiver.require()


def tour(site: Site, directory: Path, verdict: str, trace_id: str) -> Iterator[str]:
    compare = urlencode({"a": RELEASE_A.deployment, "b": RELEASE_B.deployment, "project": WEB_PROJECT})
    stops = [
        ("Install", "Choose Install to connect the receiver with the platform", "/platform"),
        ("Drain", "Every check is done, from the first request to the stored span", "/connect"),
        ("Compare", verdict, f"/compare?{compare}"),
        ("Trace", "A failed checkout: the red spans are where it failed", f"/trace/{trace_id}"),
        ("Build log", "Its warning says what changed", f"/deployment/{RELEASE_B.deployment}?kind=build"),
        ("Explanation", "Choose Send and explain", f"/trace/{trace_id}/explain"),
    ]
    yield f"\nThe demo runs in {directory}. Ctrl-C ends it.\n"
    for number, (name, text, path) in enumerate(stops, 1):
        yield f"{number}. {name}: {text}\n   {site.pages}{path}"
    yield f"   Commands that read it: .venv/bin/trace-drain errors --config {directory / CONFIG_NAME}"
    yield f"   The platform, to change and to break: {site.facts['control_url']}\n"


def _write_config(directory: Path, facts: Json, intake: str, pages: str) -> Path:
    """Write the receiver's configuration, with its secrets in files beside it."""
    secrets = {name: str(facts[name]) for name in ("token", "api_key", "client_secret", "webhook_secret")}
    files = {}
    for name, secret in {**secrets, "drain_secret": DRAIN_SECRET}.items():
        path = directory / name
        write_durably(path, secret.encode())
        # Strings of JSON are valid strings of TOML.
        files[name] = json.dumps(str(path))
    webhooks = urlencode({"webhook_url": f"http://{intake}{WEBHOOK_PATH}"})
    path = directory / CONFIG_NAME
    text = f"""\
data_dir = {json.dumps(str(directory / "receiver"))}

[api]
sql = true

[platform]
base_url = {json.dumps(facts["base_url"])}
gateway_url = {json.dumps(facts["gateway_url"])}
team = {json.dumps(facts["team_id"])}
token_file = {files["token"]}
api_key_file = {files["api_key"]}
client_id = {json.dumps(facts["client_id"])}
client_secret_file = {files["client_secret"]}
install_url = {json.dumps(f"{facts['install_url']}?{webhooks}")}
redirect_url = {json.dumps(f"http://{pages}/platform/installed")}

[platform.webhook]
path = {json.dumps(WEBHOOK_PATH)}
secret_file = {files["webhook_secret"]}

[platform.explain]
model = {json.dumps(MODEL)}

[[drain]]
name = "shop"
signature_header = "x-platform-signature"
signature_secret_file = {files["drain_secret"]}
"""
    write_durably(path, text.encode())
    return path


@contextmanager
def _started(name: str, arguments: Sequence[str], directory: Path) -> Iterator[Program]:
    """Run a command of the receiver until the block ends."""
    log = directory / f"{name}.log"
    output = open_or_create(log)
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-P", "-m", "receiver.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        # Ctrl-C in a terminal goes to the demo only, which ends the programs in their order.
        process_group=0,
    )
    # The program has its own copy of the descriptor.
    os.close(output)
    try:
        yield Program(process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(what: str, read: Callable[[], T | None], *programs: Program) -> T:
    """Poll until a result is available. A program that does not respond yet has no result."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        for program in programs:
            program.require()
        with suppress(OSError, ValueError, LookupError):
            if (result := read()) is not None:
                return result
        time.sleep(POLL_S)
    raise DemoFailed(f"{what} is not ready after {START_S:.0f} s; see {programs[0].log.parent}")


def _site(directory: Path, facts: Json) -> Site:
    urls = _file(directory / "receiver.json")["urls"]
    _answer(urls["admin"] + "/readyz")
    return Site(facts, urls["listen"], urls["api"])


def _verdict(site: Site) -> str | None:
    """Return the verdict of the comparison, once release B is worse."""
    query = urlencode({"a": RELEASE_A.deployment, "b": RELEASE_B.deployment})
    verdict = str(_json(f"{site.pages}/api/v1/compare?{query}")["verdict"])
    return verdict if "is worse" in verdict else None


def _failed_trace(site: Site) -> str:
    text = f"deployment={RELEASE_B.deployment} status=error"
    query = urlencode({"filter": text, "limit": 1, "since": "1h"})
    first_line = _answer(f"{site.pages}/api/v1/search?{query}").splitlines()[0]
    return str(json.loads(first_line)["trace_id"])


def _free_addresses(count: int) -> list[str]:
    """Return addresses of this machine with ports that are unused now."""
    with ExitStack() as stack:
        # Open at the same time, so that the ports differ.
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in listening]


def _file(path: Path) -> Json:
    return dict(json.loads(path.read_text()))


def _json(url: str, body: Json | None = None) -> Any:  # noqa: ANN401 - any JSON
    return json.loads(_answer(url, body))


def _answer(url: str, body: Json | None = None) -> bytes:
    """Return a response. Raises `OSError` for an error status."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})  # noqa: S310 - our own address
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310 - as above
        return bytes(answer.read())


if __name__ == "__main__":
    sys.exit(main())
