"""HTTP of the API: HEAD, unknown paths, methods and parameters, entity tags, compression, file names."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from backports import zstd
from structlog.testing import capture_logs

from receiver.console.api.dead_letters import DeadLetterRoutes
from receiver.console.api.exports import file_name
from receiver.console.api.rollup import RollupRoutes
from receiver.console.queries.export import ExportFormat
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.rollup.derivation import Closing
from receiver.engine.store import Store
from receiver.time_range import parse_range
from tests.support.api import Client, WaitingStore, api_over, client_of
from tests.support.cases import each_case
from tests.support.fake_clickhouse import MemoryStore

REQUIRED = {
    "operations": "service=web",
    "compare": "a=dpl_1&b=dpl_2",
    "deployment-events": "deployment=dpl_1",
    "shifts": "filter=root",
}
"""Required parameters of questions."""
QUESTION_PATHS = [f"/api/v1/{name}?{REQUIRED.get(name, '')}" for name in QUESTIONS]
TRACE = f"{1:032x}"


@pytest.fixture
async def queryless() -> AsyncIterator[Client]:
    """Yield a client of the API over a store that fails the test if a query runs."""
    async with client_of(MemoryStore()) as client:
        yield client


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    """Yield a client that leaves answers compressed."""
    async with client_of(store, options={"auto_decompress": False}) as client:
        yield client


async def a_trace_id(client: Client) -> str:
    answer = await client.get("/api/v1/spans?since=30d&limit=1", headers={"Accept-Encoding": "identity"})
    return str(json.loads((await answer.text()).splitlines()[0])["TraceId"])


@each_case(
    "path",
    [
        *QUESTION_PATHS,
        "/api/v1/export?format=parquet",
        "/api/v1/counts?trace_id=ab",
        "/api/v1/ledger?verify=1",
        f"/api/v1/traces/{TRACE}",
        f"/api/v1/traces/{TRACE}/compare/{TRACE}",
    ],
)
async def test_head_of_a_query_answers_without_the_query(queryless: Client, path: str) -> None:
    answer = await queryless.head(path)

    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith(("application/", "text/"))
    assert "Content-Length" not in answer.headers
    assert await answer.read() == b""


async def test_head_has_the_headers_of_the_answer_to_get(client: Client) -> None:
    varying = {"Date", "Transfer-Encoding", "Content-Length", "ETag"}

    for path in ("/api/v1/export?format=csv&since=2001-01-01&until=2001-01-02", "/api/v1/spans", "/docs"):
        head = await client.head(path, headers={"Accept-Encoding": "identity"})
        answer = await client.get(path, headers={"Accept-Encoding": "identity"})
        names = answer.headers.keys() - varying
        assert {name: head.headers.get(name) for name in names} == {
            name: answer.headers[name] for name in names
        }


@each_case(
    ("path", "status"),
    [
        ("/api/v1/spans?limit=0", 400),
        ("/api/v1/operations", 400),
        ("/api/v1/export?format=xml", 400),
        ("/api/v1/traces/xyz", 400),
        ("/api/v1/nothing", 404),
    ],
)
async def test_head_of_an_invalid_request_has_the_status_of_get(
    queryless: Client, path: str, status: int
) -> None:
    assert (await queryless.head(path)).status == status
    assert (await queryless.get(path)).status == status


async def test_every_route_for_get_has_head() -> None:
    with api_over(MemoryStore()) as api:
        letters = DeadLetterRoutes(None, api.pool)  # type: ignore[arg-type]  # never called
        rollup = RollupRoutes(api.store, lambda: Closing(0, 0), is_on=True, wake=lambda: None, pool=api.pool)
        routes = api.application(letters, rollup).router.routes()
    paths: dict[str, set[str]] = {"GET": set(), "HEAD": set()}
    for route in routes:
        if route.resource is not None:
            paths.setdefault(route.method, set()).add(route.resource.canonical)

    assert paths["GET"] == paths["HEAD"]
    assert "/api/v1/dead/{id}" in paths["HEAD"]


@each_case("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_wrong_method_is_answered_405_with_the_methods_of_the_route(
    queryless: Client, method: str
) -> None:
    answer = await queryless.request(method, "/api/v1/spans", headers={"Content-Type": "application/json"})

    problem = await answer.json(content_type="application/problem+json")
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET,HEAD"
    assert (problem["detail"], problem["hint"]) == (
        "the route does not have this method",
        "expected GET or HEAD",
    )


@each_case(
    ("path", "hint"),
    [
        ("/api/v1/service", "/docs lists all routes; did you mean 'services'?"),
        ("/api/v1/serch", "/docs lists all routes; did you mean 'search'?"),
        ("/api/v1/Q9", "/docs lists all routes"),
        ("/S3CRET", "/docs lists all routes"),
        ("/api/v1/" + "s3cret" * 1_000, "/docs lists all routes"),
    ],
)
async def test_unknown_path_is_answered_404_with_the_closest_route(
    queryless: Client, path: str, hint: str
) -> None:
    answer = await queryless.get(path)

    problem = await answer.json(content_type="application/problem+json")
    assert (answer.status, problem["hint"]) == (404, hint)
    assert "s3cret" not in str(problem).lower()


@each_case(
    ("name", "detail", "hint_end", "parameter"),
    [
        ("limits", "unknown parameter 'limits' in the URL", "; did you mean 'limit'?", "limits"),
        ("zzz", "unknown parameter 'zzz' in the URL", "until", "zzz"),
        ("a" * 40, f"unknown parameter '{'a' * 40}' in the URL", "until", "a" * 40),
        ("a" * 41, "unknown parameter in the URL", "until", "query"),
        ("<b>", "unknown parameter in the URL", "until", "query"),
        ("Secret", "unknown parameter in the URL", "until", "query"),
        ("a\n", "unknown parameter in the URL", "until", "query"),
    ],
)
async def test_unknown_parameter_is_named_only_if_it_is_a_short_plain_word(
    queryless: Client, name: str, detail: str, hint_end: str, parameter: str
) -> None:
    answer = await queryless.get("/api/v1/export", params={name: "s3cret"})
    of_question = await queryless.get("/api/v1/red", params={name: "s3cret"})

    problem = await answer.json(content_type=None)
    assert (problem["status"], problem["detail"], problem["parameter"]) == (400, detail, parameter)
    if hint_end != "; did you mean 'limit'?":
        assert problem["hint"] == "known are: filter, format, since, until"
    else:
        assert (await of_question.json(content_type=None))["hint"].endswith(hint_end)
    assert "s3cret" not in str(problem)


async def test_error_about_traceql_names_the_parameter_that_was_sent(client: Client) -> None:
    parsed = await client.get("/api/v1/search", params={"q": "{name = web}"})
    refused = await client.get("/api/v1/search", params={"q": '{ name =~ "a(" }'})

    for answer, column in ((parsed, 9), (refused, 11)):
        problem = await answer.json(content_type=None)
        assert (problem["parameter"], problem["column"]) == ("q", column)
        assert problem["detail"].startswith(f"q, column {column}: ")


@each_case("path", ["/api/v1/openapi.json", "/docs", "/api/v1/schema"])
async def test_unchanged_answer_is_answered_304(client: Client, path: str) -> None:
    first = await client.get(path, headers={"Accept-Encoding": "zstd"})
    tag = first.headers["ETag"]

    again = await client.get(path, headers={"If-None-Match": f'"other", {tag}', "Accept-Encoding": "gzip"})
    changed = await client.get(path, headers={"If-None-Match": 'W/"other"'})

    assert tag.startswith('W/"')
    assert (again.status, await again.read(), again.headers["ETag"]) == (304, b"", tag)
    assert (changed.status, changed.headers["ETag"]) == (200, tag)
    for name in ("Cache-Control", "Vary", "X-Content-Type-Options"):
        assert again.headers[name] == first.headers[name]


async def test_description_may_be_stored_and_answers_may_not(client: Client) -> None:
    description = await client.get("/api/v1/openapi.json")
    health = await client.get("/api/v1/health")

    assert description.headers["Cache-Control"] == "no-cache"
    assert health.headers["Cache-Control"] == "no-store"


async def test_tag_of_a_small_trace_is_that_of_its_content(client: Client) -> None:
    trace_id = await a_trace_id(client)
    path = f"/api/v1/traces/{trace_id}"

    answer = await client.get(path, headers={"Accept-Encoding": "identity"})
    again = await client.get(path, headers={"If-None-Match": answer.headers["ETag"]})
    otlp = await client.get(f"{path}?format=otlp-json")

    assert (await answer.text()).splitlines()[-1] == '{"end":{"count":1,"cut":false}}'
    assert int(answer.headers["Content-Length"]) == len(await answer.read())
    assert again.status == 304
    assert otlp.headers["ETag"] != answer.headers["ETag"]


async def test_streamed_answer_has_no_tag(client: Client) -> None:
    answer = await client.get("/api/v1/spans?since=30d", headers={"If-None-Match": "*"})

    assert answer.status == 200
    assert "ETag" not in answer.headers


async def test_large_trace_is_streamed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/api/v1/traces/{await a_trace_id(client)}"
    whole = await client.get(path, headers={"Accept-Encoding": "identity"})
    monkeypatch.setattr("receiver.console.api.responses.WHOLE_BYTES_MAX", 10)

    streamed = await client.get(path, headers={"Accept-Encoding": "identity"})

    assert "ETag" not in streamed.headers
    assert streamed.headers["Transfer-Encoding"] == "chunked"
    assert await streamed.read() == await whole.read()


@each_case("path", ["/api/v1/spans?since=30d", "/api/v1/export?since=30d&format=csv", "/api/v1/openapi.json"])
async def test_answer_is_the_same_in_every_coding(client: Client, path: str) -> None:
    plain = await client.get(path, headers={"Accept-Encoding": "identity"})
    zipped = await client.get(path, headers={"Accept-Encoding": "gzip"})
    packed = await client.get(path, headers={"Accept-Encoding": "zstd"})

    content = await plain.read()
    assert "Content-Encoding" not in plain.headers
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert packed.headers["Content-Encoding"] == "zstd"
    assert gzip.decompress(await zipped.read()) == content
    assert zstd.decompress(await packed.read()) == content
    assert {answer.headers["Vary"] for answer in (plain, zipped, packed)} == {"Accept, Accept-Encoding"}


async def test_compressed_lines_and_short_answers_arrive_while_a_query_runs() -> None:
    store = WaitingStore(b'{"a":0}\n')
    async with (
        client_of(store, options={"auto_decompress": False}) as client,
        client.get("/api/v1/spans?since=10m", headers={"Accept-Encoding": "zstd"}) as answer,
    ):
        decoder, text = zstd.ZstdDecompressor(), b""
        while not text:
            text += decoder.decompress(await answer.content.readany())
        schema = await client.get("/api/v1/schema")
        store.release.set()
        rest = decoder.decompress(await answer.read())

    assert text == b'{"a":0}\n'
    assert schema.status == 200
    assert rest.splitlines() == [b'{"a":1}', b'{"end":{"count":2,"cut":false}}']


async def test_client_that_disconnects_is_not_logged_as_a_failure() -> None:
    store = WaitingStore(b'{"a":0}\n')
    with capture_logs() as logs:
        async with client_of(store) as client:
            answer = await client.get("/api/v1/spans")
            answer.close()
            store.release.set()

    assert "response aborted" not in {line["event"] for line in logs}


async def test_errors_are_not_compressed(queryless: Client) -> None:
    answer = await queryless.get("/api/v1/nothing", headers={"Accept-Encoding": "zstd, gzip"})

    assert "Content-Encoding" not in answer.headers
    assert "ETag" not in answer.headers


@each_case(
    ("form", "ending"), [("jsonl", "jsonl"), ("csv", "csv"), ("otlp", "otlp.jsonl"), ("parquet", "parquet")]
)
async def test_export_is_a_file_named_for_its_time_range(client: Client, form: str, ending: str) -> None:
    answer = await client.get(
        "/api/v1/export", params={"format": form, "since": "2026-01-31T10:00Z", "until": "2026-01-31T11:30Z"}
    )

    name = f"spans-20260131T100000Z-20260131T113000Z.{ending}"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{name}"'


def test_name_of_an_export_ends_at_now_and_bears_any_time() -> None:
    now_s = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()

    recent = file_name(parse_range("2h", ""), ExportFormat.CSV, now_s)
    oldest = file_name(parse_range("999999999d", "2500-01-01"), ExportFormat.CSV, now_s)

    assert recent == "spans-20260131T100000Z-20260131T120000Z.csv"
    assert oldest == "spans-19700101T000000Z-20260131T120000Z.csv"


async def test_style_of_the_page_is_the_only_content_that_the_policy_permits(client: Client) -> None:
    answer = await client.get("/docs", headers={"Accept-Encoding": "identity"})

    (style,) = re.findall("<style>(.*)</style>", await answer.text(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["Content-Security-Policy"]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'"
