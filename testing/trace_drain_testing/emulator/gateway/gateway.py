"""Emulated gateway to language models: models, chat completions, providers with fallback, and faults.

Compatible with common chat client libraries. `gateway_answers` makes the answers, `gateway_wire` writes them.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Any, Final

import msgspec
from aiohttp import web

from trace_drain_testing.emulator.gateway.gateway_answers import (
    ModelAnswer,
    ScriptedAnswer,
    derived_answer,
    scripted_answer,
)
from trace_drain_testing.emulator.gateway.gateway_request import ChatRequest, InvalidRequest, parse_request
from trace_drain_testing.emulator.gateway.gateway_wire import (
    DONE,
    MALFORMED,
    Identity,
    completion_body,
    models_body,
    stream_chunks,
    stream_line,
)

MODELS: Mapping[str, tuple[str, ...]] = {
    "acme/large": ("acme", "globex", "initech"),
    "acme/small": ("acme", "globex"),
    "globex/vision": ("globex", "initech"),
}
"""Models and the providers that serve each, in the default order."""
PROVIDERS = frozenset(provider for providers in MODELS.values() for provider in providers)
FAULTS = (
    "gateway-cut-stream",
    "gateway-malformed-line",
    "gateway-missing-done",
    "gateway-slow-bytes",
    "gateway-429",
    "gateway-500",
)
"""Names of the faults that the gateway can inject."""
REQUEST_BYTES_MAX = 32 << 20
"""Maximum size of a body; images are larger than other bodies."""
REQUESTS_KEPT_MAX = 100
SCRIPT_ANSWERS_MAX = 1_000
SLOW_BYTES = 16
SLOW_S = 0.01
"""Size of the pieces of a slow response, and the pause after each."""
RETRY_AFTER_S = 1

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ProviderState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    enabled: bool


@dataclass
class Gateway:
    api_key: str
    take_fault: Callable[[str], bool]
    """Returns whether a fault is due, and uses it up."""
    shape_of: Callable[[str], str]
    """Returns the chosen shape of a rule of `UNSTATED`."""
    now_s: Callable[[], float]
    script: deque[ScriptedAnswer] = field(default_factory=deque)
    disabled_providers: set[str] = field(default_factory=set)
    requests: deque[Any] = field(default_factory=lambda: deque(maxlen=REQUESTS_KEPT_MAX))
    """Bodies of the newest valid chat requests, for tests that check what a client sent."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def answer_to(self, request: ChatRequest) -> tuple[Identity, ModelAnswer] | None:
        """Return the answer and its provider; `None` if all providers are off."""
        attempts = self._attempts(MODELS[request.model], request.provider_order)
        if not attempts[-1][1]:
            return None
        identity = Identity(
            f"chatcmpl-{next(self._numbers)}", int(self.now_s()), request.model, tuple(attempts)
        )
        if self.script:
            return identity, scripted_answer(self.script.popleft(), request)
        return identity, derived_answer(request)

    def _attempts(self, providers: Sequence[str], order: Sequence[str]) -> list[tuple[str, bool]]:
        # Providers that do not serve the model are skipped; providers that are not listed come last.
        tried = dict.fromkeys([name for name in order if name in providers] + list(providers))
        attempts: list[tuple[str, bool]] = []
        for name in tried:
            attempts.append((name, name not in self.disabled_providers))
            if attempts[-1][1]:
                break
        return attempts


_METHODS: Final = {"/v1/models": "GET", "/v1/chat/completions": "POST"}


def routes(gateway: Gateway, prefix: str, control: str) -> list[web.RouteDef]:
    """Return the routes of the gateway below `prefix`, and those of its control API below `control`."""

    async def models(request: web.Request) -> web.StreamResponse:
        if refusal := _refusal(gateway, request):
            return refusal
        return web.json_response(models_body(MODELS, int(gateway.now_s()), gateway.shape_of("P61")))

    async def chat(request: web.Request) -> web.StreamResponse:
        if refusal := _refusal(gateway, request):
            return refusal
        body = await request.read()
        try:
            parsed = parse_request(body)
        except InvalidRequest as problem:
            return _error(HTTPStatus.BAD_REQUEST, "bad_request", str(problem))
        if parsed.model not in MODELS:
            return _error(HTTPStatus.NOT_FOUND, "not_found", "no such model; GET /v1/models lists them")
        gateway.requests.append(msgspec.json.decode(body))
        result = gateway.answer_to(parsed)
        if result is None:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "no provider of the model answers")
        return await (_stream if parsed.stream else _object)(gateway, request, parsed, *result)

    return [
        web.get(f"{prefix}/v1/models", models),
        web.post(f"{prefix}/v1/chat/completions", chat),
        web.route("*", f"{prefix}/{{path:.*}}", _without_route(gateway, prefix)),
        *_control_routes(gateway, control),
    ]


def _without_route(gateway: Gateway, prefix: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return the handler of unknown paths and methods."""

    async def unknown(request: web.Request) -> web.StreamResponse:
        if refusal := _refusal(gateway, request):
            return refusal
        method = _METHODS.get(request.path.removeprefix(prefix))
        if method is None:
            return _error(
                HTTPStatus.NOT_FOUND, "not_found", f"no such path; expected {' or '.join(_METHODS)}"
            )
        return _error(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method_not_allowed",
            f"the path does not have this method; expected {method}",
            {"Allow": method},
        )

    return unknown


def _control_routes(gateway: Gateway, control: str) -> list[web.RouteDef]:
    async def script(request: web.Request) -> web.StreamResponse:
        try:
            answers = msgspec.json.decode(await request.read(), type=list[ScriptedAnswer])
        except msgspec.DecodeError as problem:
            return _error(HTTPStatus.BAD_REQUEST, "bad_request", str(problem))
        if len(gateway.script) + len(answers) > SCRIPT_ANSWERS_MAX:
            return _error(
                HTTPStatus.BAD_REQUEST, "bad_request", f"over {SCRIPT_ANSWERS_MAX} scripted answers wait"
            )
        gateway.script.extend(answers)
        return web.json_response({"waiting": len(gateway.script)})

    async def provider(request: web.Request) -> web.StreamResponse:
        try:
            state = msgspec.json.decode(await request.read(), type=ProviderState)
        except msgspec.DecodeError as problem:
            return _error(HTTPStatus.BAD_REQUEST, "bad_request", str(problem))
        if state.name not in PROVIDERS:
            return _error(HTTPStatus.NOT_FOUND, "not_found", f"no such provider; {sorted(PROVIDERS)} exist")
        (gateway.disabled_providers.discard if state.enabled else gateway.disabled_providers.add)(state.name)
        return web.json_response({"disabled": sorted(gateway.disabled_providers)})

    async def requests(_request: web.Request) -> web.StreamResponse:
        return web.json_response(list(gateway.requests))

    return [
        web.post(f"{control}/gateway/script", script),
        web.post(f"{control}/gateway/providers", provider),
        web.get(f"{control}/gateway/requests", requests),
    ]


def _refusal(gateway: Gateway, request: web.Request) -> web.Response | None:
    """Return the error before the body is read: a wrong key, or an injected fault."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    token = key.strip().encode(errors="surrogateescape")
    if scheme.lower() != "bearer" or not hmac.compare_digest(token, gateway.api_key.encode()):
        return _error(HTTPStatus.UNAUTHORIZED, "not_authorized", "the API key is missing or unknown")
    if gateway.take_fault("gateway-429"):
        return _error(
            HTTPStatus.TOO_MANY_REQUESTS,
            "rate_limited",
            "too many requests",
            {"Retry-After": str(RETRY_AFTER_S)},
        )
    if gateway.take_fault("gateway-500"):
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the gateway failed")
    return None


def _error(
    status: HTTPStatus, code: str, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.json_response(
        {"error": {"code": code, "message": message}}, status=status, headers=headers or {}
    )


async def _object(
    gateway: Gateway, request: web.Request, _parsed: ChatRequest, identity: Identity, answer: ModelAnswer
) -> web.StreamResponse:
    body = msgspec.json.encode(completion_body(identity, answer, gateway.shape_of("P66")))
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(body)
    await response.prepare(request)
    await _send(gateway, response, body)
    return response


async def _stream(
    gateway: Gateway, request: web.Request, parsed: ChatRequest, identity: Identity, answer: ModelAnswer
) -> web.StreamResponse:
    shape = gateway.shape_of("P65")
    has_usage = parsed.stream_options is not None and bool(parsed.stream_options.include_usage)
    chunks = list(stream_chunks(identity, answer, shape, has_usage=has_usage))
    lines = [stream_line(chunk, shape) for chunk in chunks]
    middle = len(lines) // 2
    is_cut = gateway.take_fault("gateway-cut-stream")
    if is_cut:
        # Cut within a line, so that the client receives an incomplete event.
        lines = [*lines[:middle], lines[middle][: len(lines[middle]) // 2]]
    elif gateway.take_fault("gateway-malformed-line"):
        lines.insert(middle, MALFORMED)
    if not is_cut and not gateway.take_fault("gateway-missing-done"):
        lines.append(DONE)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    await _send(gateway, response, *lines)
    if is_cut and request.transport is not None:
        # Without the end of the chunked body, so that the client detects an incomplete response.
        request.transport.close()
    return response


async def _send(gateway: Gateway, response: web.StreamResponse, *parts: bytes) -> None:
    if not gateway.take_fault("gateway-slow-bytes"):
        for part in parts:
            await response.write(part)
        return
    whole = b"".join(parts)
    for start in range(0, len(whole), SLOW_BYTES):
        await response.write(whole[start : start + SLOW_BYTES])
        await asyncio.sleep(SLOW_S)
