"""Control API of the emulated drains: create, list, test, resume and delete them."""

from __future__ import annotations

import msgspec
from aiohttp import web

from trace_drain_testing.emulator.drains import DRAINS_MAX, Drain, DrainRequest, Drains
from trace_drain_testing.emulator.refusals import bad_request, conflict, not_found, response_of


def routes(drains: Drains, control: str) -> list[web.RouteDef]:
    async def create(request: web.Request) -> web.StreamResponse:
        try:
            config = msgspec.json.decode(await request.read(), type=DrainRequest)
        except msgspec.DecodeError as problem:
            return response_of(bad_request(str(problem)), "object")
        if len(drains.drains) >= DRAINS_MAX:
            return response_of(conflict(f"{DRAINS_MAX} drains exist; delete one first"), "object")
        drain, status = await drains.add(config)
        return web.json_response({**drain.summary(), "test_status": status})

    async def listed(_request: web.Request) -> web.StreamResponse:
        summaries = [drain.summary() for drain in drains.drains.values()]
        return web.json_response({"drains": summaries, "notices": list(drains.notices)})

    async def delete(request: web.Request) -> web.StreamResponse:
        del drains.drains[_drain(drains, request).id]
        return web.json_response({})

    async def test(request: web.Request) -> web.StreamResponse:
        return web.json_response({"test_status": await drains.test(_drain(drains, request))})

    async def resume(request: web.Request) -> web.StreamResponse:
        drain = _drain(drains, request)
        drains.resume(drain)
        return web.json_response(drain.summary())

    return [
        web.post(f"{control}/drains", create),
        web.get(f"{control}/drains", listed),
        web.delete(f"{control}/drains/{{id}}", delete),
        web.post(f"{control}/drains/{{id}}/test", test),
        web.post(f"{control}/drains/{{id}}/resume", resume),
    ]


def _drain(drains: Drains, request: web.Request) -> Drain:
    try:
        return drains.drains[request.match_info["id"]]
    except KeyError as error:
        body = response_of(not_found("drain"), "object").text
        raise web.HTTPNotFound(text=body, content_type="application/json") from error
