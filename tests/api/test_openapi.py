"""The description of the API has every route and no other, and only schemas that JSON Schema knows."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from receiver.api import openapi
from receiver.api.dead_letters import DeadLetterRoutes
from receiver.api.rollup import RollupRoutes
from receiver.api.routes import Api
from receiver.api.spool import SpoolSpace
from receiver.query.questions import QUESTIONS
from tests.support.fake_clickhouse import MemoryStore

UNDESCRIBED = {("GET", "/docs")}


def routes_of_application(directory: Path) -> set[tuple[str, str]]:
    with ThreadPoolExecutor(1) as pool:
        api = Api(MemoryStore(), str, dict, dict, dict, pool, pool, SpoolSpace(directory, 0, lambda: 0))
        dead_letters = DeadLetterRoutes(None, pool)  # type: ignore[arg-type]  # never called
        rollup = RollupRoutes(MemoryStore(), dict, is_on=True, wake=lambda: None, pool=pool)  # type: ignore[arg-type]  # as above
        application = api.application(dead_letters, rollup)
    return {
        (route.method, route.resource.canonical)
        for route in application.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


def test_every_route_is_described_and_no_other(tmp_path: Path) -> None:
    described = {
        (method.upper(), path)
        for path, operations in openapi.document()["paths"].items()
        for method in operations
    }

    assert described == routes_of_application(tmp_path) - UNDESCRIBED


def test_parameters_of_a_question_are_those_that_it_accepts() -> None:
    paths = openapi.document()["paths"]

    for name, question in QUESTIONS.items():
        described = {parameter["name"] for parameter in paths[f"/api/v1/{name}"]["get"]["parameters"]}
        assert described == set(question.parameter_names)


def test_every_reference_of_the_description_resolves() -> None:
    document = openapi.document()

    references = set(references_of(document))

    assert references
    assert references <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def references_of(part: Any) -> list[str]:  # noqa: ANN401 - any JSON
    if isinstance(part, dict):
        own = [part["$ref"]] if "$ref" in part else []
        return own + [found for value in part.values() for found in references_of(value)]
    return [found for value in part for found in references_of(value)] if isinstance(part, list) else []


def test_page_escapes_the_description_and_loads_nothing() -> None:
    page = openapi.page()

    assert "GET /api/v1/search" in page
    assert "<script" not in page
    assert "src=" not in page
    assert json.dumps(openapi.document())
