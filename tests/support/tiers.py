"""Tiers of the tests: `make test` is quick and proves each promise, `make test-faults` runs the long tests.

The fault tier has the tests in `FAULT_TIER` and with the marker `fault_tier`, except the tests of `PROMISES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

FAULT_TIER = (
    "tests/benchmarks/test_query.py::test_both_tables_give_answers_with_the_same_number_of_lines",
    "tests/benchmarks/test_query.py::test_ingest_is_measured_without_and_with_queries",
    "tests/benchmarks/test_query.py::test_run_of_one_question_keeps_the_results_of_others",
    "tests/benchmarks/test_store.py::test_both_tables_hold_the_same_spans_and_return_the_same_results",
    "tests/benchmarks/test_tour.py",
    # tests/console/queries/test_raw_sql.py tests the same checks for the API.
    "tests/console/tools/clickhouse_http/test_statements.py::test_attacks_on_files_are_refused_even_if_one_check_fails",
    "tests/crash",
    (
        "tests/deletion/test_deletions.py"
        "::test_kill_at_each_statement_deletes_all_or_nothing_and_counts_it_once"
    ),
    (
        "tests/deletion/test_deletions.py"
        "::test_kill_at_each_change_of_a_file_deletes_all_or_nothing_and_counts_it_once"
    ),
    "tests/deploy/test_release.py::test_wheel_has_the_package_and_nothing_else",
    "tests/dead_letters/test_replay.py::test_replay_killed_at_any_step_stores_the_rows_once",
    "tests/e2e",
    "tests/testing/emulator/test_shop_demo.py",
    "tests/faults",
    "tests/ledger/test_writer.py::test_kill_while_a_part_becomes_a_dead_letter_keeps_the_ledger_correct",
    "tests/move/test_mover.py::test_killed_move_is_continued_by_the_next",
    "tests/platform/client/test_followed_events.py::test_memory_stays_flat_over_many_events_and_connections",
    (
        "tests/redelivery/test_delayed_segments.py"
        "::test_kill_while_a_segment_becomes_a_dead_letter_stores_no_copy_twice"
    ),
    "tests/console/rollup/test_days.py::test_kill_while_a_day_is_written_changes_no_answer",
    "tests/console/rollup/test_rollups.py::test_kill_at_any_statement_changes_no_answer",
    "tests/test_span_rules.py::test_every_alert_fires_in_a_unit_test",
    "tests/torture/test_torture.py",
)
"""What only `make test-faults` runs: tests of whole processes, kills at each step, benchmarks."""


class Promise(NamedTuple):
    """A promise of the product, its test in `make test`, and its tests in `make test-faults`."""

    text: str
    test: str
    fault_tests: tuple[str, ...]


PROMISES = (
    Promise(
        "A span of a delivery that is answered with 200 is stored exactly once, also if a process is killed",
        "tests/e2e/test_kill.py::test_killed_process_loses_and_duplicates_no_span",
        ("tests/crash", "tests/faults", "tests/torture/test_torture.py"),
    ),
    Promise(
        "Without ClickHouse, deliveries are accepted, and answered with 503 when the journal is full",
        "tests/faults/test_starts.py"
        "::test_receiver_started_without_clickhouse_accepts_deliveries_up_to_the_journal_limit"
        "_and_stores_them_later",
        ("tests/faults/test_serve.py", "tests/faults/test_starts.py", "tests/faults/test_disk_running.py"),
    ),
    Promise(
        "One bad span costs one span; the answer says what was rejected, and the other spans are stored",
        "tests/e2e/test_conformance_bodies.py",
        ("tests/e2e/test_conformance_http.py",),
    ),
    Promise(
        "Every field of a span is stored as it was sent",
        "tests/e2e/test_oracle.py::test_every_field_is_stored_as_sent",
        ("tests/torture/test_torture.py",),
    ),
    Promise(
        "The ledger accounts for every span, also while processes are killed",
        "tests/e2e/test_ledger.py::test_ledger_matches_the_counts_of_the_sender_while_processes_are_killed",
        ("tests/e2e/test_ledger.py", "tests/faults/test_starts.py", "tests/torture/test_torture.py"),
    ),
    Promise(
        "A delivery that is sent again is stored once",
        "tests/e2e/test_redelivery.py::test_body_sent_ten_times_is_stored_once_while_processes_are_killed",
        ("tests/e2e/test_redelivery.py", "tests/faults/test_redelivered.py"),
    ),
    Promise(
        "The SDK of OpenTelemetry with its default settings loses no span",
        "tests/e2e/test_sdk.py::test_trace_of_the_sdk_with_default_settings_is_stored_completely",
        ("tests/e2e/test_sdk.py", "tests/e2e/test_load.py"),
    ),
    Promise(
        "Operators read a span on the pages and with the commands soon after its delivery",
        "tests/e2e/test_pages.py::test_pages_follow_a_first_delivery_until_it_is_readable",
        ("tests/e2e/test_compare.py", "tests/e2e/test_priority.py"),
    ),
    Promise(
        "Clients of ClickHouse read the spans with a token",
        "tests/e2e/test_clickhouse_endpoint.py::test_spans_are_read_with_the_token_until_the_receiver_stops",
        ("tests/e2e/test_clickhouse_endpoint.py",),
    ),
    Promise(
        "The drain endpoint has a certificate for TLS without configuration",
        "tests/e2e/test_tls.py::test_self_signed_certificate_is_created_and_used",
        ("tests/e2e/test_tls.py", "tests/faults/test_rotation.py"),
    ),
    Promise(
        "A session of an operator survives a restart and ends with its token",
        "tests/e2e/test_sessions.py::test_restart_keeps_a_session_and_a_new_token_ends_it",
        (),
    ),
    Promise(
        "A webhook that is acknowledged is applied, also if every process is killed",
        "tests/e2e/test_webhooks.py::test_p50_webhooks_are_applied_though_every_process_is_killed",
        ("tests/crash/test_webhooks.py",),
    ),
)


def is_within(node_id: str, entries: Iterable[str]) -> bool:
    """Return whether a file or a test is one of the entries, or is in a folder, file or function of them."""
    return any(
        node_id == entry or node_id.startswith((f"{entry}/", f"{entry}::", f"{entry}[")) for entry in entries
    )


def promise_tests() -> Iterator[str]:
    """Yield the node ids of the tests of whole processes in `make test`."""
    yield from (promise.test for promise in PROMISES)


def is_fault_tier(node_id: str) -> bool:
    """Return whether only `make test-faults` runs the test."""
    return is_within(node_id, FAULT_TIER) and not is_within(node_id, promise_tests())


def has_only_fault_tier(file: str) -> bool:
    """Return whether `make test` runs no test of the file."""
    return is_within(file, FAULT_TIER) and not any(is_within(test, [file]) for test in promise_tests())
