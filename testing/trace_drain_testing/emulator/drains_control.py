"""Control API of the emulated drains: create, list, test, resume and delete them."""

from __future__ import annotations

from aiohttp import web

from trace_drain_testing.emulator.drains import DRAINS_MAX, Drain, DrainRequest, Drains
from trace_drain_testing.emulator.refusals import answering, conflict, decoded, not_found


def routes(drains: Drains, control: str) -> list[web.RouteDef]:
    async def create(request: web.Request) -> web.StreamResponse:
        config = decoded(await request.read(), DrainRequest)
        if len(drains.drains) >= DRAINS_MAX:
            raise conflict(f"{DRAINS_MAX} drains exist; delete one first")
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
        web.post(f"{control}/drains", answering(create)),
        web.get(f"{control}/drains", listed),
        web.delete(f"{control}/drains/{{id}}", answering(delete)),
        web.post(f"{control}/drains/{{id}}/test", answering(test)),
        web.post(f"{control}/drains/{{id}}/resume", answering(resume)),
    ]


def _drain(drains: Drains, request: web.Request) -> Drain:
    try:
        return drains.drains[request.match_info["id"]]
    except KeyError:
        raise not_found("drain") from None
