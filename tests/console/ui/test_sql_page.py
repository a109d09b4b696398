"""Page of SQL statements: the result as a table or a chart, errors at the editor, links, files and limits."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import ClientResponse
from structlog.testing import capture_logs

from receiver.console.api import source
from receiver.console.api.source import SqlAnswer
from receiver.console.queries.raw_sql.statement import QUERY_CHARS_MAX, Column
from receiver.console.ui.charts.result_chart import BARS_MAX, LINES_MAX, result_chart
from receiver.console.ui.pages.sql import (
    CELL_CHARS_MAX,
    EXAMPLES,
    LINK_BYTES_MAX,
    ROWS_MAX,
    Cell,
    cell_of,
    link_of,
)
from tests.console.ui.conftest import HOSTILE, HOSTILE_TRACE, Client, StartReceiver
from tests.console.ui.test_pages import Document
from tests.support.access import OPERATOR, VIEWER, session
from tests.support.cases import each_case

WIDE = "SELECT number, repeat('x', {}) AS x FROM numbers({})"


async def document(answer: ClientResponse) -> Document:
    return Document(await answer.text())


async def statement_page(site: Client, statement: str, **more: str) -> Document:
    page = await document(await site.get("/sql", params={"q": statement, **more}))
    assert not [attributes for _, attributes in page.elements if attributes.get("id") == "trouble"]
    return page


def cells(page: Document, kind: str) -> int:
    return sum(attributes.get("class") == kind for attributes in page.all("td"))


async def test_result_is_a_table_with_types_and_visible_nulls(site: Client) -> None:
    page = await statement_page(
        site, "SELECT NULL AS a, '' AS b, 'NULL' AS c, nan AS d, toInt128(18446744073709551616) e, [true] f"
    )

    assert "1 row in" in page.text
    assert "Nullable(Nothing)" in page.text
    assert cells(page, "null") == 2
    assert "not finite" in page.text
    assert "18446744073709551616" in page.text
    assert "[true]" in page.text


@each_case(
    ("kind", "value", "cell"),
    [
        ("Nullable(String)", None, Cell("NULL", "null")),
        ("Nullable(Float64)", None, Cell("NULL", "null")),
        ("Float32", None, Cell("not finite", "null")),
        ("String", "", Cell("")),
        ("Bool", False, Cell("false")),
        ("Int256", 2**200, Cell(str(2**200), "number")),
        ("Decimal(9, 2)", 1.5, Cell("1.5", "number")),
        ("DateTime64(9)", "2026-01-01 00:00:00.000000001", Cell("2026-01-01 00:00:00.000000001", "when")),
        ("Map(String, String)", {"a": "é"}, Cell('{"a": "é"}')),
    ],
)
def test_value_is_shown_by_its_type(kind: str, value: object, cell: Cell) -> None:
    assert cell_of(Column("a", kind), value) == cell


async def test_cut_result_and_cut_value_are_marked(site: Client) -> None:
    page = await statement_page(site, WIDE.format(CELL_CHARS_MAX + 1, ROWS_MAX + 1))
    whole = await statement_page(site, WIDE.format(CELL_CHARS_MAX, ROWS_MAX))

    assert f"The first {ROWS_MAX} rows in" in page.text
    assert "there are more" in page.text
    assert f"Values are cut at {CELL_CHARS_MAX} characters" in page.text
    assert f"{'x' * CELL_CHARS_MAX}…" in page.text
    assert f"{ROWS_MAX} rows in" in whole.text
    assert "there are more" not in whole.text
    assert "Values are cut" not in whole.text


async def test_result_without_rows_has_its_columns(site: Client) -> None:
    page = await statement_page(site, "SELECT TraceId, Duration FROM otel_traces WHERE ProjectId = 'none'")

    assert "no row is in its answer" in page.text
    assert "UInt64" in page.text


async def test_hostile_values_and_statements_stay_text(site: Client) -> None:
    # A statement with NUL is refused, so these values come from the table.
    stored = f"SELECT SpanName AS x, map(x, [x]) AS y FROM otel_traces WHERE TraceId = '{HOSTILE_TRACE}'"  # noqa: S608
    for statement in (stored, " ".join(HOSTILE)):
        page = await document(await site.get("/sql", params={"q": statement}))

        assert not page.tags & {"img", "iframe", "style"}
        scripts = [attributes["src"] for attributes in page.all("script")]
        assert all(str(source).startswith("/static/") for source in scripts)
        for text in HOSTILE:
            assert text.replace("\r\n", "\n") in page.text.replace("\r\n", "\n")


async def test_trace_id_links_to_its_trace(site: Client) -> None:
    page = await statement_page(
        site, "SELECT TraceId, 'x' FROM otel_traces WHERE startsWith(TraceId, 'ffff') LIMIT 1"
    )

    assert f"/trace/{HOSTILE_TRACE}" in page.links


@each_case(
    ("statement", "text"),
    [
        ("SELECT file('/etc/passwd')", "the function file is not allowed"),
        ("DROP TABLE otel_traces", "expected a single SELECT statement"),
        ("SELECT nosuch FROM otel_traces", "nosuch"),
        ("SELECT 1 FROM", "SYNTAX_ERROR"),
        ("x" * (QUERY_CHARS_MAX + 1), "expected at most 16000 characters"),
    ],
)
async def test_wrong_statement_is_explained_at_the_editor_which_keeps_it(
    site: Client, statement: str, text: str
) -> None:
    page = await document(await site.post("/sql", data={"q": statement}))

    trouble = [attributes for _, attributes in page.elements if attributes.get("id") == "trouble"]
    (editor,) = page.all("textarea")
    assert [attributes["role"] for attributes in trouble] == ["alert"]
    assert editor["aria-describedby"] == "trouble"
    assert text in page.text
    assert statement in page.text


@pytest.mark.usefixtures("whole_pages")
async def test_editor_keeps_the_statement_while_the_store_is_unavailable(start: StartReceiver) -> None:
    client = await start()

    answer = await client.get("/sql", params={"q": "SELECT 42"}, headers=session(OPERATOR))
    page = await document(answer)

    assert answer.status == 503
    assert "NETWORK_ERROR (210)" in page.text
    assert "SELECT 42" in page.text


async def test_form_redirects_to_the_url_of_a_statement(site: Client) -> None:
    answer = await site.post("/sql", data={"q": "SELECT 1 AS `a b`,\r\n 'ü&='"}, allow_redirects=False)
    page = await document(await site.get(answer.headers["Location"]))

    assert answer.status == 303
    assert parse_qs(urlsplit(answer.headers["Location"]).query) == {"q": ["SELECT 1 AS `a b`,\n 'ü&='"]}
    assert "1 row in" in page.text


async def test_statement_that_is_too_long_for_a_url_runs_without_a_redirect(site: Client) -> None:
    short, long = (f"SELECT 1 AS x, 'é{'y' * (LINK_BYTES_MAX - size)}' AS z" for size in (24, 23))

    with_url = await site.post("/sql", data={"q": short}, allow_redirects=False)
    page = await document(await site.post("/sql", data={"q": long}, allow_redirects=False))

    assert len(short.encode()) == LINK_BYTES_MAX
    assert with_url.status == 303
    assert "1 row in" in page.text
    assert "This statement has no link and no files" in page.text
    assert not [link for link in page.links if link.startswith("/api/v1/sql")]


@each_case("character", ["a", "%", "\0", "é", "€", "👩", "\ud800", "\r\n"])
def test_url_of_a_statement_fits_into_a_request_line(character: str) -> None:
    text = character * (LINK_BYTES_MAX // len(character.encode(errors="surrogatepass")))

    assert 0 < len(link_of({"q": text})) < 3 * LINK_BYTES_MAX + 10


async def test_files_have_all_rows_and_whole_values(site: Client) -> None:
    page = await statement_page(site, WIDE.format(1_000, ROWS_MAX + 7))

    links = {parse_qs(urlsplit(link).query)["format"][0]: link for link in page.links if "format=" in link}
    csv = await (await site.get(links["csv"])).text()
    answers = {form: (await site.get(link)).status for form, link in links.items()}

    assert answers == {"jsonl": 200, "csv": 200, "parquet": 200}
    assert len(csv.splitlines()) == ROWS_MAX + 8
    assert "x" * 1000 in csv


async def test_tables_are_listed_and_examples_work(site: Client) -> None:
    page = await document(await site.get("/sql"))

    assert {link_of({"q": statement}) for statement in EXAMPLES.values()} <= set(page.links)
    for text in ("otel_traces", "otel_red", "SpanAttributes", "DateTime64(9)"):
        assert text in page.text
    for statement in EXAMPLES.values():
        # The spans of the tests may be of yesterday.
        text = statement.replace("INTERVAL 1 HOUR", "INTERVAL 3 DAY")
        assert "is in its answer" not in (await statement_page(site, text)).text


@each_case(
    "statement",
    ["(SELECT 1 AS x) UNION ALL (SELECT 2 AS x)", "WITH t AS (SELECT 42 AS n) SELECT n, n FROM t"],
)
async def test_columns_of_every_form_of_statement_are_known(site: Client, statement: str) -> None:
    page = await statement_page(site, statement)

    assert "UInt8" in page.text


async def test_list_of_columns_is_limited(site: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SQL_COLUMNS_MAX", 3)

    page = await document(await site.get("/sql"))

    assert len(page.all("dt")) == 3


async def test_page_says_how_to_switch_sql_on(site: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source.ApiSource, "allows_sql", False)

    page = await document(await site.get("/sql", params={"q": "SELECT 1"}))

    assert "SQL is off." in page.text
    assert "sql = true" in page.text
    assert "textarea" not in page.tags


async def test_result_that_is_too_large_for_a_page_is_refused(
    site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SQL_BYTES_MAX", 100)

    page = await document(await site.get("/sql", params={"q": "SELECT repeat('x', 1000)"}))

    assert "the answer is larger than 100 bytes" in page.text


async def test_statement_is_logged_by_its_digest(site: Client) -> None:
    with capture_logs() as logged:
        await statement_page(site, "SELECT 'canary'")

    assert [line["event"] for line in logged] == ["SQL statement ended"]
    assert "canary" not in str(logged)


async def test_navigation_has_the_page_for_operators_only(start: StartReceiver) -> None:
    client = await start()

    links = {
        user.name: (await document(await client.get("/receiver", headers=session(user)))).links
        for user in (VIEWER, OPERATOR)
    }

    assert [any(link.startswith("/sql") for link in links[name]) for name in ("vera", "otto")] == [
        False,
        True,
    ]


async def test_chart_is_shown_first_and_the_table_by_the_url(site: Client) -> None:
    statement = "SELECT ServiceName, count() AS spans FROM otel_traces GROUP BY ServiceName"

    chart, table = await statement_page(site, statement), await statement_page(site, statement, show="table")

    tables = [[attributes.get("class") for attributes in page.all("table")] for page in (chart, table)]
    assert tables == [["bars"], ["result"]]
    assert any(link.endswith("&show=table") for link in chart.links)
    assert any(link.endswith("&show=chart") for link in table.links)


def answer_of(kinds: list[str], *rows: tuple[object, ...]) -> SqlAnswer:
    columns = [Column(f"c{index}", kind) for index, kind in enumerate(kinds)]
    names = [column.name for column in columns]
    return SqlAnswer(columns, [dict(zip(names, row, strict=True)) for row in rows], is_cut=False, seconds=0.1)


TIME = "DateTime64(9, 'UTC')"


@each_case(
    ("kinds", "rows", "form"),
    [
        ([TIME, "UInt64"], [("2026-01-01 00:00:00.000000001", 1), ("2026-01-01 00:00:01", 2)], "lines"),
        (["Date", "Nullable(Float64)", "UInt8"], [("2026-01-01", None, 1)], "lines"),
        (["Nullable(DateTime)", "UInt8"], [(None, 1)], "none"),
        (["LowCardinality(String)", "Decimal(9, 2)"], [("a", 1.5), ("b", None)], "bars"),
        (["LowCardinality(Nullable(String))", "UInt8"], [(None, 0)], "bars"),
        (["Enum8('a' = 1)", "Int64"], [("a", 1)], "bars"),
        (["String", "UInt64", "UInt64"], [("a", 1, 2)], "none"),
        (["String", "Int64"], [("a", -1)], "none"),
        ([TIME, "Int64"], [("2026-01-01 00:00:00", -1)], "none"),
        ([TIME, "UInt64", "String"], [("2026-01-01 00:00:00", 1, "a")], "none"),
        ([TIME], [("2026-01-01 00:00:00",)], "none"),
        (["UInt64", "UInt64"], [(1, 2)], "none"),
        (["String", "UInt64"], [], "none"),
        (["String", "Array(UInt64)"], [("a", [1])], "none"),
    ],
)
def test_first_column_selects_the_kind_of_chart(
    kinds: list[str], rows: list[tuple[object, ...]], form: str
) -> None:
    chart = result_chart(answer_of(kinds, *rows))

    chart_form = "none" if chart is None else "lines" if chart.lines else "bars"
    assert chart_form == form


def test_lines_are_in_the_order_of_time_and_at_their_times() -> None:
    rows = [("2026-01-01 00:00:10", 4), ("2026-01-01 00:00:00", 0), ("2026-01-01 00:00:01", 4)]

    chart = result_chart(answer_of(["DateTime", "UInt8"], *rows))

    assert chart is not None
    # A tenth of the width between both ends; 4 is at the top, 0 at the bottom.
    assert 'd="M166.67 158L210.93 2L609.33 2"' in str(chart.lines)
    assert "2026-01-01 00:00:10" in str(chart.lines)


def test_lines_and_bars_that_are_left_out_are_counted() -> None:
    numbers = LINES_MAX + 2

    lines = result_chart(answer_of([TIME, *["UInt8"] * numbers], ("2026-01-01 00:00:00", *range(numbers))))
    bars = result_chart(answer_of(["String", "UInt8"], *[(str(index), 1) for index in range(BARS_MAX + 3)]))

    assert lines is not None
    assert bars is not None
    assert (len(lines.legend), lines.left_out) == (LINES_MAX, 2)
    assert (len(bars.bars), bars.left_out) == (BARS_MAX, 3)


def test_names_of_a_chart_are_escaped() -> None:
    answer = SqlAnswer(
        [Column("t", "Date"), Column(HOSTILE[0], "UInt8")],
        [{"t": "2026-01-01", HOSTILE[0]: 1}],
        is_cut=False,
        seconds=0,
    )

    chart = result_chart(answer)

    assert chart is not None
    assert "<script>" not in str(chart.lines)
    assert "&lt;script&gt;" in str(chart.lines)
