"""Tests of searches over HTTP: answers with their end line, and errors that never repeat the filter."""

from __future__ import annotations

import json
from typing import Any

from receiver.console.queries.questions import QUESTIONS
from tests.support.api import Client
from tests.support.cases import each_case


async def answer_of(client: Client, **query: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the summaries and the end line."""
    answer = await client.get("/api/v1/search", params={"since": "30d", **query})
    assert answer.status == 200, await answer.text()
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    *rows, end = (json.loads(line) for line in (await answer.text()).splitlines())
    return rows, end


async def test_search_answers_a_summary_per_trace_and_whether_it_was_cut(client: Client) -> None:
    whole, whole_end = await answer_of(client)
    limited, limited_end = await answer_of(client, limit="3")

    assert whole_end == {"end": {"count": 4, "cut": False}}
    assert limited_end == {"end": {"count": 3, "cut": True}}
    assert limited == whole[:3]
    columns = {"trace_id", "service", "name", "deployment", "start", "duration_ms", "spans", "errors"}
    assert {*whole[0]} == columns


@each_case("path", ["/api/v1/search", "/api/v1/spans"])
async def test_last_line_of_a_page_has_the_cursor_of_the_next_page(client: Client, path: str) -> None:
    *whole, _ = await lines_of(client, path)
    *first, first_end = await lines_of(client, path, limit="3", cursor="")
    *rest, last_end = await lines_of(client, path, limit="3", cursor=first_end["end"]["next"])

    key = "trace_id" if "trace_id" in whole[0] else "TraceId"
    assert {row[key] for row in first + rest} == {row[key] for row in whole}
    assert (len(first), len(rest)) == (3, 1)
    assert last_end == {"end": {"count": 1, "cut": False}}


async def test_search_without_a_match_answers_only_the_end_line(client: Client) -> None:
    assert await answer_of(client, filter="service=absent") == ([], {"end": {"count": 0, "cut": False}})


async def test_every_form_of_a_filter_is_answered(client: Client) -> None:
    text = "{service=shop} && {trace:spans=1 span.k exists}"
    document = {"all": [{"field": "service", "op": "=", "value": "shop"}, {"attribute": "k", "op": "exists"}]}

    found, _ = await answer_of(client, filter=text)

    assert len(found) == 2
    assert (await answer_of(client, filter=json.dumps(document)))[0] == found
    assert (await answer_of(client, q="{ rootServiceName = `shop` && span.k != nil }"))[0] == found


async def test_end_line_of_a_search_without_a_match_names_close_keys(client: Client) -> None:
    rows, end = await answer_of(client, filter="resource.k=v0")

    assert rows == []
    assert end == {"end": {"count": 0, "cut": False, "close_keys": ["span.k"]}}


@each_case(
    ("query", "error"),
    [
        ({"q": "{name = s3cret}"}, "q, column 9: expected a quoted text"),
        ({"q": "{} | s3cret()"}, "q, column 4: pipelines and metrics"),
        ({"q": "{}", "filter": "root"}, "filter and q: expected only one of them"),
        ({"filter": '{"all": [{"s3cret": 1}]}'}, "filter, $.all[0]: unknown key"),
        ({"filter": "{service=s3cret && root}"}, "filter, column 17: this is TraceQL"),
        ({"filter": "sevice=s3cret"}, "filter, column 1: unknown field; did you mean 'service'?"),
        (
            {"filter": 'service=s3cret name=~"s3cret("'},
            "filter, column 22: the regular expression is not valid",
        ),
        ({"filter": "s3cret\x00"}, "filter, column 7: the filter has a NUL character"),
        ({"filter": "service=s3cret' OR 1=1 --"}, "filter, column 20: expected a field"),
        ({"until": "s3cret"}, "until is neither an age nor an instant"),
        ({"since": "1h", "until": "2h"}, "until: expected a later time than since"),
        ({"cursor": "s3cret"}, "cursor does not belong to this question"),
        ({"since": "1h", "until": "2026-01-31"}, "until: expected a later time than since"),
        ({"since": "2199-01-01", "until": "1h"}, "until: expected a later time than since"),
        ({"since": "2199-01-01"}, "since: expected a time before now"),
        ({"since": "0s"}, "since: expected a time before now"),
        ({"limit": "10001"}, "limit: expected a whole number from 1 to 10000"),
        ({"s3cret": "1"}, "unknown parameter in the URL; known are: columns, cursor, filter"),
        ({"q": '{ name =~ "s3cret(" }'}, "q, column 11: the regular expression is not valid"),
    ],
)
async def test_invalid_search_is_refused_without_its_text(
    client: Client, query: dict[str, str], error: str
) -> None:
    answer = await client.get("/api/v1/search", params=query)

    body = await answer.json()
    assert answer.status == 400
    assert f"{body['detail']}; {body.get('hint', '')}".startswith(error)
    assert "s3cret" not in str(body)


@each_case(
    "hostile", ["' OR 1=1 --", "') FORMAT Null --", "{filter_0:String}", "\\", "\x1b]0;x\x07", "%", "_"]
)
async def test_hostile_value_matches_no_span(client: Client, hostile: str) -> None:
    value = '"' + hostile.replace("\\", "\\\\").replace('"', '\\"') + '"'

    for text in (f"service={value}", f"span.{value} exists", f"http.route={value}"):
        assert (await answer_of(client, filter=text))[0] == []


async def lines_of(client: Client, path: str, **query: str) -> list[dict[str, Any]]:
    answer = await client.get(path, params={"since": "30d", **query})
    assert answer.status == 200, await answer.text()
    return [json.loads(line) for line in (await answer.text()).splitlines()]


async def test_last_line_of_names_tells_whether_they_were_cut(client: Client) -> None:
    *services, whole_end = await lines_of(client, "/api/v1/services")
    *limited, limited_end = await lines_of(client, "/api/v1/services", limit="1")

    assert whole_end == {"end": {"count": 2, "cut": False}}
    assert limited_end == {"end": {"count": 1, "cut": True}}
    assert limited == services[:1]
    assert sum(row["spans"] for row in services) == 4


async def test_operations_and_attributes_are_answered(client: Client) -> None:
    *operations, _ = await lines_of(client, "/api/v1/operations", service="shop")
    *keys, _ = await lines_of(client, "/api/v1/attributes")
    *values, _ = await lines_of(client, "/api/v1/attributes", key="k")
    hostile = await lines_of(client, "/api/v1/attributes", key="') OR 1=1 --")

    assert [row["spans"] for row in operations] == [2]
    assert {"scope": "span", "key": "k", "spans": 4} in keys
    assert {row["value"] for row in values} == {"v0", "v1", "v2", "v3"}
    assert hostile == [{"end": {"count": 0, "cut": False}}]


async def test_error_is_problem_details_with_a_hint_and_the_column(client: Client) -> None:
    answer = await client.get("/api/v1/search", params={"filter": "service=web status=bad"})
    other = await client.get("/api/v1/search", params={"since": "soon"})

    problem, hint = (
        await answer.json(content_type="application/problem+json"),
        await other.json(content_type=None),
    )
    assert (problem["status"], problem["title"], problem["parameter"]) == (400, "Bad Request", "filter")
    assert problem["column"] == len("service=web status=") + 1
    assert hint["detail"] == "since is neither an age nor an instant"
    assert hint["hint"].startswith("expected a number and s, m, h or d")


async def test_time_range_may_be_two_instants(client: Client) -> None:
    _, end = await answer_of(client, since="2001-01-01T00:00Z", until="2001-01-02T00:00:00.5+01:00")
    whole, _ = await answer_of(client, since="2001-01-01")

    assert end["end"]["count"] == 0
    assert len(whole) == 4


@each_case("name", [name for name in QUESTIONS if name != "compare"])
async def test_every_line_of_an_answer_agrees_with_the_description(client: Client, name: str) -> None:
    document = await (await client.get("/api/v1/openapi.json")).json()
    content = document["paths"][f"/api/v1/{name}"]["get"]["responses"]["200"]["content"]
    found, _ = await answer_of(client, limit="1")
    values = {"service": "", "deployment": "dpl", "filter": f"trace={found[0]['trace_id']}"}
    required = {each.name: values[each.name] for each in QUESTIONS[name].parameters if each.is_required}

    answer = await client.get(f"/api/v1/{name}", params={"since": "30d", **required})

    assert answer.status == 200, await answer.text()
    lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert "end" in lines[-1]
    for line in lines:
        assert agrees(line, content["application/x-ndjson"]["schema"], document), line


TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
}


def agrees(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> bool:  # noqa: ANN401 - any JSON
    """Return whether a value agrees with a schema, of the keywords that the description has."""
    if "$ref" in schema:
        return agrees(value, document["components"]["schemas"][schema["$ref"].split("/")[-1]], document)
    if "anyOf" in schema:
        return any(agrees(value, each, document) for each in schema["anyOf"])
    if "type" in schema and not isinstance(value, TYPES[schema["type"]]):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        # A described object has no other members; an object without properties may have any.
        names_agree = not properties or value.keys() <= properties.keys()
        return (
            names_agree
            and {*schema.get("required", ())} <= value.keys()
            and all(agrees(value[key], part, document) for key, part in properties.items() if key in value)
        )
    if isinstance(value, list) and "items" in schema:
        return all(agrees(each, schema["items"], document) for each in value)
    return True
