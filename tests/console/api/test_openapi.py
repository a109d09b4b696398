"""The description of the API has every route and no other, and only schemas that JSON Schema knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from receiver.console.api.dead_letters import DeadLetterRoutes
from receiver.console.api.description import openapi
from receiver.console.api.description.operation import question_parameters
from receiver.console.api.description.page import page
from receiver.console.api.lines import ARROW
from receiver.console.api.rollup import RollupRoutes
from receiver.console.api.route import Route, routes_of
from receiver.console.queries.aggregates.counts import parse_counts
from receiver.console.queries.export import CONTENT_TYPES as EXPORT_TYPES
from receiver.console.queries.export import parse_export
from receiver.console.queries.question import Question
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.raw_sql.statement import parse_sql
from receiver.console.queries.traces.otlp import CONTENT_TYPES as OTLP_TYPES
from receiver.errors import Refused
from receiver.http.media_types import JSON_LINES
from receiver.http.protocol import PROBLEM
from receiver.platform.api import PlatformRoutes
from receiver.platform.explain.explainer import Explainer
from receiver.platform.explain.routes import ExplainRoutes
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.projects import Projects
from receiver.settings import Platform
from tests.support.api import api_over
from tests.support.cases import each_case
from tests.support.fake_clickhouse import MemoryStore

Document = dict[str, Any]


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[Route]:
    """Return the routes of the API with those of the platform's side."""
    records = tmp_path_factory.mktemp("data") / "platform"
    with api_over(MemoryStore()) as api:
        dead_letters = DeadLetterRoutes(None, api.pool)  # type: ignore[arg-type]  # never called
        rollup = RollupRoutes(api.store, dict, is_on=True, wake=lambda: None, pool=api.pool)  # type: ignore[arg-type]  # as above
        platform = PlatformRoutes(Installations(records), Projects(records), lambda: 0, api.pool)
        explain = ExplainRoutes(api.source, Explainer(Platform))
        return routes_of(api.application(dead_letters, rollup, platform, explain))


@pytest.fixture
def document(routes: list[Route]) -> Document:
    return openapi.document(routes)


def test_every_route_of_the_api_but_its_page_is_described(routes: list[Route], document: Document) -> None:
    described = {(method, path) for method, path, _ in operations(document)}

    assert described == {(route.method.lower(), route.path) for route in routes} - {("get", "/docs")}


def test_parameters_of_a_question_are_those_that_it_accepts(document: Document) -> None:
    paths = document["paths"]

    for name, question in QUESTIONS.items():
        described = {parameter["name"] for parameter in paths[f"/api/v1/{name}"]["get"]["parameters"]}
        assert described == set(question.parameter_names)


def test_every_reference_of_the_description_resolves(document: Document) -> None:
    references = set(references_of(document))

    assert references
    assert references <= {
        f"#/components/{kind}/{name}" for kind, parts in document["components"].items() for name in parts
    }


def references_of(part: Any) -> list[str]:  # noqa: ANN401 - any JSON
    if isinstance(part, dict):
        own = [part["$ref"]] if "$ref" in part else []
        return own + [found for value in part.values() for found in references_of(value)]
    return [found for value in part for found in references_of(value)] if isinstance(part, list) else []


def test_each_line_of_an_answer_is_a_row_or_the_end_line(document: Document) -> None:
    contents = [
        (path, method, operation["responses"]["200"]["content"][JSON_LINES])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if JSON_LINES in operation.get("responses", {}).get("200", {}).get("content", {})
    ]
    end = {"$ref": "#/components/schemas/EndLine"}

    described = [(path, method, content["schema"]) for path, method, content in contents if content]
    assert len(described) > 10
    assert [(path, method) for path, method, schema in described if end not in schema["anyOf"]] == []


def test_page_escapes_the_description_and_loads_nothing(document: Document) -> None:
    document["paths"]["/api/v1/search"]["get"]["summary"] = "<em>summary</em>"

    text = page(document)

    assert "GET /api/v1/search" in text
    assert "&lt;em&gt;summary&lt;/em&gt;" in text
    assert not re.search(r"<script|src=|@import|url\(|<link", text)


def test_page_shows_type_limits_and_default_of_a_parameter(document: Document) -> None:
    text = page(document)

    assert "<td>integer, 1 to 10000, default <code>100</code></td><td>maximum number of lines</td>" in text
    assert "<td><code>requests</code> | <code>all</code>, default <code>requests</code></td>" in text
    assert "<td>boolean, default <code>false</code></td>" in text


def operations(document: Document) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_operation_ids_are_unique_words(document: Document) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z][A-Za-z]+", name) for name in names)


def test_every_placeholder_of_a_path_is_a_required_path_parameter(document: Document) -> None:
    for _, path, operation in operations(document):
        declared = [each for each in operation["parameters"] if each["in"] == "path"]
        assert {each["name"] for each in declared} == set(re.findall(r"{(\w+)}", path))
        assert all(each["required"] for each in declared)


def test_every_operation_describes_its_errors_as_problems(document: Document) -> None:
    responses = document["components"]["responses"]

    for method, _, operation in operations(document):
        assert {"200", "400", "401", "403", "default"} <= operation["responses"].keys()
        assert ("415" in operation["responses"]) == (method == "post")
    assert all(response["content"].keys() == {PROBLEM} for response in responses.values())


def test_body_is_described_only_where_it_is_read(document: Document) -> None:
    bodies = {
        operation["operationId"]: operation["requestBody"]
        for method, _, operation in operations(document)
        if method == "post"
    }
    for operation, member in (("postSql", "query"), ("readStore", "what")):
        body = bodies.pop(operation)
        assert body["required"]
        assert body["content"]["application/json"]["schema"]["required"] == [member]

    assert not any(
        body["required"] or body["content"]["application/json"]["schema"] for body in bodies.values()
    )


def test_export_and_traces_list_every_content_type(document: Document) -> None:
    paths = document["paths"]

    def types_of(path: str) -> set[str]:
        return set(paths[path]["get"]["responses"]["200"]["content"])

    assert types_of("/api/v1/export") == set(EXPORT_TYPES.values())
    assert types_of("/api/v1/traces/{id}") == {JSON_LINES, *OTLP_TYPES.values()}
    assert types_of("/api/v1/spans") == {JSON_LINES, ARROW}


REQUIRED = {"service": "web", "key": "k", "deployment": "dpl_1", "a": "dpl_1", "b": "dpl_2", "filter": "root"}


def beside(name: str) -> dict[str, str]:
    """Return the parameters that a value of this parameter needs: an end follows its start."""
    return {"since": "2001-01-01"} if name == "until" else {}


def is_accepted(question: Question[Any], name: str, value: str) -> bool:
    required = {each.name: REQUIRED[each.name] for each in question.parameters if each.is_required}
    try:
        question.parse({**required, **beside(name), name: value})
    except Refused:
        return False
    return True


@each_case("name", QUESTIONS)
def test_schema_of_a_parameter_agrees_with_its_parser(name: str) -> None:
    question = QUESTIONS[name]

    for parameter in question_parameters(question):
        for value, is_valid in examples_of(parameter.schema):
            assert is_accepted(question, parameter.name, value) == is_valid, (parameter.name, value)


def examples_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield values and whether they are valid, at the edges of what the schema allows."""
    if "default" in schema:
        yield str(schema["default"]), True
    for example in schema.get("examples", ()):
        yield example, True
    for word in schema.get("enum", ()):
        yield word, True
    if "enum" in schema:
        yield "another", False
    if "pattern" in schema or "anyOf" in schema:
        yield "5 apples", False
    if schema["type"] == "integer":
        yield from ((str(schema["minimum"]), True), (str(schema["maximum"]), True), ("x", False))
        yield str(schema["minimum"] - 1), False


def test_schemas_of_other_routes_agree_with_their_parsers(routes: list[Route]) -> None:
    parsers: dict[str, Callable[[dict[str, str]], object]] = {
        "/api/v1/export": parse_export,
        "/api/v1/counts": lambda query: parse_counts({"trace_id": "ab", **query}),
        "/api/v1/sql": lambda query: parse_sql({"query": "SELECT 1", **query}),
    }
    operation_of = {route.path: route.operation for route in routes if route.method == "GET"}
    for path, parse in parsers.items():
        operation = operation_of[path]
        assert operation is not None
        for parameter in operation.parameters:
            for value, is_valid in examples_of(parameter.schema):
                with nullcontext() if is_valid else pytest.raises(Refused):
                    parse({**beside(parameter.name), parameter.name: value})
