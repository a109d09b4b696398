"""Run the emulator: listen, write `platform.json`, serve requests until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from receiver.config.addresses import Address
from receiver.durable.files import make_directories, write_durably
from receiver.errors import OperatorError, place_and_reason
from trace_drain_testing.emulator.application import Facts, application, facts_of
from trace_drain_testing.emulator.platform import Platform

FACTS_NAME = "platform.json"
SHUTDOWN_S = 1.0
"""Time for open requests to end after a stop."""


@asynccontextmanager
async def running(platform: Platform, listen: Address, directory: Path) -> AsyncIterator[Facts]:
    """Serve requests, and write the facts into the directory."""
    sock = _listening(listen)
    address = Address(listen.host, sock.getsockname()[1]).to_connect
    facts = facts_of(platform, f"http://{address}")
    runner = web.AppRunner(application(platform), access_log=None, shutdown_timeout=SHUTDOWN_S)
    try:
        await runner.setup()
        await web.SockSite(runner, sock).start()
        # After the socket listens, so that a program that reads the file can connect.
        make_directories(directory)
        write_durably(directory / FACTS_NAME, msgspec.json.format(msgspec.json.encode(facts)) + b"\n")
        yield facts
    finally:
        await runner.cleanup()
        sock.close()


async def emulate(
    platform: Platform,
    listen: Address,
    directory: Path,
    on_started: Callable[[Facts], None],
    stopped: Callable[[], Awaitable[object]],
) -> None:
    """Serve requests until `stopped` returns."""
    async with running(platform, listen, directory) as facts:
        on_started(facts)
        await stopped()


def _listening(listen: Address) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        return socket.create_server((listen.host, listen.port), family=family)
    except OSError as error:
        raise OperatorError(f"{listen} cannot be used: {place_and_reason(error)}") from error
