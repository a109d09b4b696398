"""Child process: a real supervisor with fake children, `python -m tests.doubles.supervised DIR [silence_s]`.

`DIR/trace-drain.toml` is its configuration. Environment variables: with `SOCKET_FOR_SYSTEMD`, a listening
socket is passed as systemd does. `INTAKE` names another intake module. `HEAD_START_S` is how long the other
processes wait for the intakes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from receiver import logs
from receiver.config.load import Sources
from receiver.errors import OperatorError
from receiver.supervisor.child import Patience
from receiver.supervisor.run import Plan, supervise


def environment() -> dict[str, str]:
    """Return the environment, with a socket passed as systemd does."""
    environ = dict(os.environ)
    if "SOCKET_FOR_SYSTEMD" in environ:
        listening = socket.create_server(("127.0.0.1", int(environ["SOCKET_FOR_SYSTEMD"])))
        if listening.detach() != 3:
            raise AssertionError("expected descriptor 3 to be the first free descriptor")
        environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "drain"}
    return environ


def main() -> int:
    directory = Path(sys.argv[1])
    silence_s = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    environ = environment()
    sources = Sources(str(directory / "trace-drain.toml"), {}, {"--data": ("data_dir", str(directory))})
    logs.set_up("json", process="supervisor")
    try:
        plan = Plan(
            sources,
            sources.load(),
            environ,
            environ.get("INTAKE", "tests.doubles.fake_child"),
            "tests.doubles.fake_child",
            Patience(silence_s=silence_s, head_start_s=float(environ.get("HEAD_START_S", "2"))),
        )
        return asyncio.run(supervise(plan))
    except OperatorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
