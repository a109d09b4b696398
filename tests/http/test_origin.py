"""Tests of the Host and Origin checks, which refuse browser requests caused by another site."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest

from receiver.http.origin import OriginCheck
from receiver.metrics import Metrics
from receiver.settings import Settings
from receiver.supervisor.admin import Admin
from receiver.supervisor.health import Readiness
from tests.support.api import client_of
from tests.support.cases import each_case
from tests.support.fake_clickhouse import MemoryStore

WAIT_S = 20.0
HOSTS = ["Traces.Example."]


@each_case(
    ("host", "is_allowed"),
    [
        ("127.0.0.1:8318", True),
        ("10.1.2.3", True),
        ("[::1]:8318", True),
        ("localhost:8318", True),
        ("LOCALHOST.", True),
        (f"{socket.gethostname()}:8318", True),
        ("traces.example:443", True),
        ("evil.example:8318", False),
        ("127.0.0.1.evil.example", False),
        ("traces.example.evil.example", False),
        ("localhost@evil.example", False),
        ("[::1]evil.example", False),
        ("receiver:8318", False),
        ("", False),
        ("::1", False),
    ],
)
async def test_api_answers_only_to_its_own_host_names(host: str, *, is_allowed: bool) -> None:
    async with client_of(MemoryStore(), hosts=HOSTS) as client:
        answer = await client.get("/api/v1/health", headers={"Host": host})
        body = await answer.json()

    assert answer.status == (200 if is_allowed else 403)
    assert is_allowed or "api_hosts" in body["hint"]
    assert is_allowed or "evil" not in body["hint"]


@each_case("method", ["GET", "POST", "DELETE", "OPTIONS"])
@each_case(
    ("headers", "is_allowed"),
    [
        pytest.param({}, True, id="no browser"),
        pytest.param({"Origin": "http://localhost:8318"}, True, id="own page"),
        pytest.param({"Origin": "http://localhost:3000"}, False, id="another port"),
        pytest.param({"Origin": "https://evil.example"}, False, id="another site"),
        pytest.param({"Origin": "null"}, False, id="sandboxed page"),
        pytest.param({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False, id="image"),
        pytest.param({"Sec-Fetch-Site": "same-origin"}, True, id="fetch by own page"),
    ],
)
async def test_api_refuses_every_method_from_another_origin(
    headers: dict[str, str], method: str, *, is_allowed: bool
) -> None:
    async with client_of(MemoryStore(), hosts=HOSTS) as client:
        answer = await client.request(method, "/api/v1/health", headers={"Host": "localhost:8318", **headers})

    assert (answer.status != 403) == is_allowed


async def test_navigation_from_another_site_is_allowed() -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with client_of(MemoryStore(), hosts=HOSTS) as client:
        followed = await client.get("/api/v1/health", headers=headers)
        posted = await client.post("/api/v1/health", headers=headers)

    assert (followed.status, posted.status) == (200, 403)


@each_case(
    ("host", "status"),
    [
        pytest.param("10.1.2.3:9464", b"200", id="probe by the address of a pod"),
        pytest.param("receiver:9464", b"200", id="short name of a container"),
        pytest.param(None, b"200", id="HTTP/1.0 without a host"),
        pytest.param("evil.example:9464", b"403", id="rebound name"),
    ],
)
async def test_admin_port_answers_probes_and_refuses_rebound_names(host: str | None, status: bytes) -> None:
    settings = msgspec.structs.replace(Settings(), api_hosts=())
    server_socket = socket.create_server(("127.0.0.1", 0))
    address = server_socket.getsockname()
    admin = Admin(lambda: Readiness(ready=True, checks=()), list, settings, Metrics("supervisor"))
    listener = await admin.serve(server_socket)
    reader, writer = await asyncio.open_connection(*address)
    host_line = b"" if host is None else f"Host: {host}\r\n".encode()

    writer.write(b"GET /livez HTTP/1." + (b"0" if host is None else b"1") + b"\r\n" + host_line + b"\r\n")
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)

    assert answer.split()[1] == status
    writer.close()
    await listener.close()


def test_short_host_names_are_allowed_only_if_enabled() -> None:
    assert not OriginCheck("api", []).is_allowed_host("receiver:1")
    assert OriginCheck("admin", [], allows_short_names=True).is_allowed_host("receiver:1")
