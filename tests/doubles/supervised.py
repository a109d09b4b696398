"""A real supervisor over fake children, as a process: `python -m tests.doubles.supervised DIR [silence_s]`.

`DIR/trace-drain.toml` is its configuration. Before it starts it can play systemd for itself: with
`SOCKET_FOR_SYSTEMD` a listening socket is passed as systemd does. `INTAKE` names another intake,
`HEAD_START_S` says how long the rest waits for them.
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
    """Ours, with a socket as systemd passes it."""
    environ = dict(os.environ)
    if "SOCKET_FOR_SYSTEMD" in environ:
        listening = socket.create_server(("127.0.0.1", int(environ["SOCKET_FOR_SYSTEMD"])))
        if listening.detach() != 3:
            raise AssertionError("the first descriptor of a fresh process is 3")
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
    except OperatorError as reason:
        sys.stderr.write(f"{reason}\n")
        return reason.exit_code


if __name__ == "__main__":
    sys.exit(main())
