"""Metrics and checks that pages read from the admin port."""

from __future__ import annotations

import asyncio
import socket

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from receiver.console.ui.admin_port import Check, read_admin_port
from receiver.metrics import Metrics
from receiver.supervisor import health
from receiver.supervisor.admin import render


async def served(status: int, metrics: Metrics, readiness: bytes) -> TestServer:
    async def metrics_answer(_request: web.Request) -> web.Response:
        return web.Response(body=render([metrics.snapshot()]))

    async def readiness_answer(request: web.Request) -> web.Response:
        assert request.headers["Accept"] == "application/json"
        return web.Response(body=readiness, status=status)

    application = web.Application()
    application.router.add_get("/metrics", metrics_answer)
    application.router.add_get("/readyz", readiness_answer)
    server = TestServer(application)
    await server.start_server()
    return server


async def test_report_of_a_receiver_that_is_not_ready_has_metrics_and_checks() -> None:
    metrics = Metrics("intake-0")
    metrics.add("deliveries", 3, drain="a", status="200")
    metrics.add("deliveries", 1, drain="a", status="401")
    metrics.add("deliveries", 5, drain="b", status="200")
    metrics.set("certificate_expires_in_seconds", 60)
    checks = (health.Check("intake-0", "journal", "the disk is full", decides=True),)
    readiness = msgspec.json.encode(health.Readiness(ready=False, checks=checks))
    server = await served(503, metrics, readiness)

    report = await asyncio.to_thread(read_admin_port, f"127.0.0.1:{server.port}")
    await server.close()

    assert report is not None
    assert report.by("status", "deliveries_total", drain="a") == {"200": 3, "401": 1}
    assert report.total("deliveries_total") == 9
    assert report.total("certificate_expires_in_seconds") == 60
    assert report.checks == (Check("intake-0", "journal", "the disk is full"),)


async def test_invalid_response_of_the_admin_port_returns_none() -> None:
    server = await served(200, Metrics("x"), b"not found")

    report = await asyncio.to_thread(read_admin_port, f"127.0.0.1:{server.port}")
    await server.close()

    assert report is None


def test_unreachable_admin_port_returns_none() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))

        assert read_admin_port(f"127.0.0.1:{bound.getsockname()[1]}") is None
