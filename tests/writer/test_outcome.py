"""Comparison of counts with a segment, error classes and retry delays."""

from __future__ import annotations

from itertools import islice

import pytest

from receiver.backoff import backoff_s
from receiver.engine.error_codes import FAULT_OF, Fault, fault_of
from receiver.errors import StoreTrouble
from receiver.writer.outcome import Comparison, Completeness, due_days, judge, rows_by_day

DAY_S = 86_400
JAN_31 = 20_484  # days from 1970 to 2026-01-31

ROWS = {"20260130": 3, "20260131": 5}
BOTH = frozenset(ROWS)


@pytest.mark.parametrize(
    ("counted", "due", "answered", "comparison"),
    [
        pytest.param(ROWS, BOTH, set(), Comparison(Completeness.COMPLETE), id="all rows stored"),
        pytest.param({}, BOTH, set(), Comparison(Completeness.NOTHING, tuple(ROWS)), id="no row stored"),
        pytest.param(
            {},
            BOTH,
            BOTH,
            Comparison(Completeness.NOTHING, tuple(ROWS)),
            id="answered with OK, but no row stored",
        ),
        pytest.param(
            {"20260130": 3},
            BOTH,
            BOTH,
            Comparison(Completeness.MISSING, ("20260131",)),
            id="a whole day is missing",
        ),
        pytest.param(
            {"20260130": 3, "20260131": 4},
            BOTH,
            set(),
            Comparison(Completeness.INCONSISTENT, ("20260131",)),
            id="a day is stored in part",
        ),
        pytest.param(
            {"20260130": 6, "20260131": 5},
            BOTH,
            set(),
            Comparison(Completeness.INCONSISTENT, ("20260130",)),
            id="a day is stored twice",
        ),
        pytest.param(
            {"20260131": 5},
            {"20260131"},
            BOTH,
            Comparison(Completeness.COMPLETE),
            id="answered with OK, then expired",
        ),
        pytest.param(
            {"20260131": 5},
            {"20260131"},
            set(),
            Comparison(Completeness.MISSING, ("20260130",)),
            id="may have expired, never answered: inserted again",
        ),
        pytest.param(
            {"20260130": 1, "20260131": 5},
            {"20260131"},
            set(),
            Comparison(Completeness.COMPLETE),
            id="some rows of a day have expired",
        ),
        pytest.param({}, set(), BOTH, Comparison(Completeness.COMPLETE), id="all rows expired at the INSERT"),
        pytest.param(
            {},
            set(),
            set(),
            Comparison(Completeness.NOTHING, tuple(ROWS)),
            id="all rows may have expired, never answered",
        ),
    ],
)
def test_counts_are_compared_by_day(
    counted: dict[str, int], due: set[str], answered: set[str], comparison: Comparison
) -> None:
    assert judge(ROWS, counted, due=due, answered=answered) == comparison


def test_rows_are_counted_by_partition_id() -> None:
    runs = [(0, 3, JAN_31 - 1, 0), (3, 5, JAN_31, 0), (5, 6, JAN_31 - 1, 0)]

    assert rows_by_day(runs) == {"20260130": 4, "20260131": 2}


def test_on_a_cluster_rows_are_counted_by_shard_and_partition_id() -> None:
    runs = [(0, 3, JAN_31, 1), (3, 5, JAN_31, 2), (5, 6, JAN_31, 1)]

    assert rows_by_day(runs) == {"1/20260131": 4, "2/20260131": 2}


def test_day_of_a_shard_is_due_as_the_day_is() -> None:
    days = ("2/20260130", "1/20260131")

    assert due_days(days, now_s=JAN_31 * 86_400, retention_days=1) == {"1/20260131"}


def test_rows_on_a_shard_that_should_have_none_are_inconsistent() -> None:
    counted = {"1/20260131": 3, "2/20260131": 1}

    comparison = judge({"1/20260131": 3}, counted, due={"1/20260131"}, answered=set())

    assert comparison == Comparison(Completeness.INCONSISTENT, ("2/20260131",))


@pytest.mark.parametrize(
    ("age_s", "is_due"),
    [
        pytest.param(30 * DAY_S - 2 * 3600, True, id="two hours before the first row expires"),
        pytest.param(30 * DAY_S - 3601, True, id="a second before the margin for clock differences"),
        pytest.param(30 * DAY_S - 3600, False, id="within the margin for clock differences"),
        pytest.param(31 * DAY_S, False, id="expired"),
    ],
)
def test_day_is_due_until_its_first_row_may_have_expired(age_s: int, is_due: bool) -> None:  # noqa: FBT001
    due = due_days(["20260131"], now_s=JAN_31 * DAY_S + age_s, retention_days=30)

    assert due == ({"20260131"} if is_due else set())


def test_every_day_is_due_without_expiry() -> None:
    assert due_days(["19900101"], now_s=JAN_31 * DAY_S, retention_days=0) == {"19900101"}


def test_delays_double_up_to_a_ceiling_and_jitter_only_shortens_them() -> None:
    without_jitter = backoff_s(0.1, 1.0)
    with_jitter = backoff_s(0.1, 1.0, jitter=0.5, random_share=lambda: 1.0)

    assert list(islice(without_jitter, 6)) == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert list(islice(with_jitter, 6)) == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]


POISON = {6, 7, 9, 20, 27, 32, 33, 38, 41, 50, 53, 62, 69, 70, 72, 128, 131, 190, 349, 354, 469, 618}
RETRYABLE = {
    159,
    198,
    201,
    202,
    203,
    209,
    210,
    225,
    236,
    241,
    242,
    243,
    279,
    285,
    286,
    394,
    439,
    692,
    745,
    999,
}


def test_every_known_error_code_has_its_class() -> None:
    retryable = {code for code, fault in FAULT_OF.items() if fault in {Fault.RETRY, Fault.SLOWER}}
    by_fault = {fault: {code for code, known in FAULT_OF.items() if known is fault} for fault in Fault}

    assert by_fault[Fault.POISON] == POISON
    assert retryable == RETRYABLE | {216, 252}
    assert by_fault[Fault.HOLD] == {16, 60, 73, 81, 115, 117, 164, 192, 193, 194, 497, 516}
    assert by_fault[Fault.UNKNOWN] == {75, 204, 319, 1001}


@pytest.mark.parametrize(
    ("trouble", "fault"),
    [
        pytest.param(StoreTrouble("reset"), Fault.UNKNOWN, id="no answer"),
        pytest.param(StoreTrouble("page", status=502), Fault.SLOWER, id="a proxy cannot reach the server"),
        pytest.param(StoreTrouble("page", status=307), Fault.HOLD, id="a proxy redirects"),
        pytest.param(StoreTrouble("tls", name="CERTIFICATE_REFUSED"), Fault.HOLD, id="certificate refused"),
        pytest.param(StoreTrouble("Too many parts (300)", code=252), Fault.SLOWER, id="merges are behind"),
        pytest.param(
            StoreTrouble("Too many partitions for single INSERT block", code=252),
            Fault.BY_DAY,
            id="too many days at once",
        ),
        pytest.param(StoreTrouble("?", code=987_654), Fault.HOLD, id="unknown code"),
    ],
)
def test_errors_are_classified_by_code_and_if_needed_by_text(trouble: StoreTrouble, fault: Fault) -> None:
    assert fault_of(trouble) is fault
