"""Emulated gateway to language models: models, chat completions, providers with fallback, and faults.

Compatible with common chat client libraries. `gateway_answers` makes the answers, `gateway_wire` writes them.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from trace_drain_testing.emulator.gateway.gateway_request import ChatRequest, parse_request
from trace_drain_testing.emulator.gateway.gateway_wire import (
    DONE,
    MALFORMED,
    Identity,
    completion_body,
    models_body,
    stream_chunks,
    stream_line,
)
from trace_drain_testing.emulator.refusals import Refusal, answering, bad_request, decoded, not_found

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
        _require_allowed(gateway, request)
        return web.json_response(models_body(MODELS, int(gateway.now_s()), gateway.shape_of("P61")))

    async def chat(request: web.Request) -> web.StreamResponse:
        _require_allowed(gateway, request)
        body = await request.read()
        parsed = parse_request(body)
        if parsed.model not in MODELS:
            raise not_found("model; GET /v1/models lists them")
        gateway.requests.append(msgspec.json.decode(body))
        result = gateway.answer_to(parsed)
        if result is None:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "no provider of the model answers")
        return await (_stream if parsed.stream else _object)(gateway, request, parsed, *result)

    async def unknown(request: web.Request) -> web.StreamResponse:
        _require_allowed(gateway, request)
        method = _METHODS.get(request.path.removeprefix(prefix))
        if method is None:
            raise not_found(f"path; expected {' or '.join(_METHODS)}")
        raise Refusal(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method_not_allowed",
            f"the path does not have this method; expected {method}",
            {"Allow": method},
        )

    return [
        web.get(f"{prefix}/v1/models", answering(models)),
        web.post(f"{prefix}/v1/chat/completions", answering(chat)),
        web.route("*", f"{prefix}/{{path:.*}}", answering(unknown)),
        *_control_routes(gateway, control),
    ]


def _control_routes(gateway: Gateway, control: str) -> list[web.RouteDef]:
    async def script(request: web.Request) -> web.StreamResponse:
        answers = decoded(await request.read(), list[ScriptedAnswer])
        if len(gateway.script) + len(answers) > SCRIPT_ANSWERS_MAX:
            raise bad_request(f"over {SCRIPT_ANSWERS_MAX} scripted answers wait")
        gateway.script.extend(answers)
        return web.json_response({"waiting": len(gateway.script)})

    async def provider(request: web.Request) -> web.StreamResponse:
        state = decoded(await request.read(), ProviderState)
        if state.name not in PROVIDERS:
            raise not_found(f"provider; {sorted(PROVIDERS)} exist")
        (gateway.disabled_providers.discard if state.enabled else gateway.disabled_providers.add)(state.name)
        return web.json_response({"disabled": sorted(gateway.disabled_providers)})

    async def requests(_request: web.Request) -> web.StreamResponse:
        return web.json_response(list(gateway.requests))

    return [
        web.post(f"{control}/gateway/script", answering(script)),
        web.post(f"{control}/gateway/providers", answering(provider)),
        web.get(f"{control}/gateway/requests", requests),
    ]


def _require_allowed(gateway: Gateway, request: web.Request) -> None:
    """Refuse before the body is read: because of a wrong key, or an injected fault."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    token = key.strip().encode(errors="surrogateescape")
    if scheme.lower() != "bearer" or not hmac.compare_digest(token, gateway.api_key.encode()):
        raise Refusal(HTTPStatus.UNAUTHORIZED, "not_authorized", "the API key is missing or unknown")
    if gateway.take_fault("gateway-429"):
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "rate_limited", "too many requests", headers)
    if gateway.take_fault("gateway-500"):
        raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the gateway failed")


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
