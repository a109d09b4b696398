"""Exports have exactly the matching spans, in order, in every format; time slices cover the range."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from receiver.console.queries.csv_text import FORMULA_BEGINNINGS
from receiver.console.queries.export import BUCKET_NS, TimeSlice, export, parse_export, time_slices
from receiver.engine.store import Store
from receiver.errors import InvalidFilter, MalformedBody, StoreTrouble
from tests.support import engines
from tests.support.answers import rows_of
from tests.support.cases import RANDOM_CASES, each_case
from tests.support.random_filters import NOW_S, Span, as_row, random_span
from tests.support.random_trees import random_filter

SPANS = 800
DAY = {"since": "1d"}
Key = tuple[str, int]


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(21)
    made = [random_span(rng, number) for number in range(SPANS)]
    for number, beginning in enumerate(FORMULA_BEGINNINGS):
        made[number]["StatusMessage"] = f'{beginning}1+1,"\n'
    return made + made[:20]  # spans that two senders sent


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the range in slices of a few rows."""
    defaults = list(time_slices.__defaults__ or ())
    monkeypatch.setattr(time_slices, "__defaults__", (*defaults[:-1], 100))


def content(store: Store, **query: str) -> bytes:
    return b"".join(export(store, parse_export({**DAY, **query}), NOW_S))


def keys(spans: Sequence[Span]) -> Counter[Key]:
    return Counter((span["SpanId"], span["Duration"]) for span in spans)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.random_cases
def test_random_filters_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(4)
    for _ in range(RANDOM_CASES // 2):
        text, matches = random_filter(rng)

        rows = rows_of([content(store, filter=text)])

        assert keys(rows) == keys([span for span in spans if matches(span)]), text
        assert [row["Timestamp"] for row in rows] == sorted(row["Timestamp"] for row in rows)


@pytest.mark.usefixtures("small_slices")
def test_export_has_every_column_with_its_value(store: Store, spans: Sequence[Span]) -> None:
    expected = {json.dumps(json.loads(as_row(span)), sort_keys=True) for span in spans}
    columns = [name for name in spans[0] if name not in {"start_ns", "Events.Timestamp"}]

    rows = rows_of([content(store)])

    assert {len(row) for row in rows} == {38}
    shown = {json.dumps([row[name] for name in columns], sort_keys=True) for row in rows}
    assert shown == {
        json.dumps([json.loads(text)[name] for name in columns], sort_keys=True) for text in expected
    }


def test_csv_of_no_span_is_the_line_of_names(store: Store) -> None:
    whole = content(store, format="csv", filter="duration>=0ns")

    assert content(store, format="csv", filter="-duration>=0ns") == whole.partition(b"\n")[0] + b"\n"
    assert content(store, filter="-duration>=0ns") == b""


@pytest.mark.usefixtures("small_slices")
def test_csv_has_a_single_head_and_no_cell_that_a_spreadsheet_evaluates(
    store: Store, spans: Sequence[Span]
) -> None:
    table = list(csv.DictReader(io.StringIO(content(store, format="csv").decode(), newline="")))

    assert keys([{**row, "Duration": int(row["Duration"])} for row in table]) == keys(spans)
    assert not [cell for row in table for cell in row.values() if cell.startswith(FORMULA_BEGINNINGS)]
    unchanged = {span["SpanId"]: span["StatusMessage"] for span in spans}
    for row in table:
        assert row["StatusMessage"].removeprefix("'") == unchanged[row["SpanId"]].removeprefix("'")
        assert json.loads(row["SpanAttributes"]) is not None


@pytest.mark.usefixtures("small_slices")
def test_otlp_lines_have_every_span(store: Store, spans: Sequence[Span]) -> None:
    messages = rows_of([content(store, format="otlp")])

    found = [
        (span["spanId"], int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]))
        for message in messages
        for resource in message["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    assert Counter(found) == keys(spans)


def test_parquet_has_the_same_spans(store: Store, engine_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "spans.parquet"
    file.write_bytes(content(store, format="parquet", filter="status=error"))

    # The embedded engine reads any file; a server reads only those in its own directory.
    reader = store if store.embedded else None
    opened = nullcontext(reader) if reader else engines.embedded(engine_dir)
    with opened as engine:
        rows = engine.rows("SELECT SpanId, Duration FROM file({path:String}, Parquet)", {"path": str(file)})

    expected = rows_of([content(store, filter="status=error")])
    assert expected
    assert Counter(rows) == keys(expected)


def test_incomplete_parquet_file_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = content(store, format="parquet")
    monkeypatch.setattr(store, "_pieces", lambda *_: iter([whole[:-10], b"Code: 159"]))

    with pytest.raises(StoreTrouble, match="before the end of the Parquet file"):
        content(store, format="parquet")


@each_case("seed", range(30))
def test_slices_cover_the_range_once_and_are_small(seed: int) -> None:
    rng = random.Random(seed)
    begin, end = sorted(rng.sample(range(10 * BUCKET_NS), 2))
    instants = sorted(rng.randrange(begin, end) for _ in range(rng.choice([0, 5, 500])))
    counts = sorted(Counter(instant // BUCKET_NS for instant in instants).items())

    parts = list(time_slices(counts, TimeSlice(begin, end), 40))

    assert [part.from_ns for part in parts] == [begin, *(part.to_ns for part in parts[:-1])]
    assert parts[-1].to_ns == end
    largest = max(sum(part.from_ns <= at < part.to_ns for at in instants) for part in parts)
    assert largest <= 80


@each_case(
    ("query", "error"),
    [
        ({"format": "s3cret"}, MalformedBody),
        ({"limit": "1"}, MalformedBody),
        ({"since": "soon"}, MalformedBody),
        ({"filter": "sevice=s3cret"}, InvalidFilter),
    ],
)
def test_invalid_parameters_are_refused_without_their_text(
    query: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error) as refusal:
        parse_export(query)

    assert "s3cret" not in str(refusal.value)
