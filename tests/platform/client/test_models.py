"""The list of models of the gateway."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.platform.client import errors
from receiver.platform.client.gateway import Gateway
from receiver.platform.client.retries import ATTEMPTS_MAX
from tests.support.cases import each_case
from tests.support.platform_corpus import HOSTILE_JSON
from tests.support.platform_events import no_sleep
from tests.support.platform_server import Answer, PlatformServer, platform_server

MODEL = "openai/gpt-4.1"


def gateway_of(server: PlatformServer) -> Gateway:
    return Gateway(server.url, "key", 5.0)


MODELS = [{"id": MODEL, "object": "model", "created": 1, "owned_by": "openai"}, {"id": "a/b", "new": 1}]


@pytest.mark.parametrize("body", [{"object": "list", "data": MODELS}, {"models": MODELS}, MODELS])
async def test_p61_models_are_listed_from_any_shape(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer(body)) as server, gateway_of(server) as gateway:
        models = await gateway.models()

    assert [(model.id, model.owned_by, model.raw) for model in models] == [
        (MODEL, "openai", MODELS[0]),
        ("a/b", "", MODELS[1]),
    ]
    assert (server.received[0].method, server.received[0].path) == ("GET", "/v1/models")
    assert server.received[0].body == b""


async def test_p61_models_may_be_names() -> None:
    async with platform_server(Answer({"data": [MODEL]})) as server, gateway_of(server) as gateway:
        assert [model.id for model in await gateway.models()] == [MODEL]


@each_case("body", [{}, {"data": {}}, {"data": [{}]}, [[]], *HOSTILE_JSON.values()])
async def test_p61_answer_without_models_is_an_error(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer(body)) as server, gateway_of(server) as gateway:
        with pytest.raises(errors.WrongAnswer):
            await gateway.models()


async def test_p61_list_of_models_is_read_again_after_a_failure() -> None:
    async with platform_server(Answer({}, 503)) as server, gateway_of(server) as gateway:
        gateway._sleep = no_sleep  # noqa: SLF001 - the delays are tested alone
        with pytest.raises(errors.ServerFailed):
            await gateway.models()

    assert len(server.received) == ATTEMPTS_MAX
