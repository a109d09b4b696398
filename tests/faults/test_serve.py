"""`trace-drain serve` under load in front of a failing server; all tests share one receiver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from receiver.engine import schema
from tests.e2e.receiver_process import PATIENCE_S
from tests.e2e.test_kill import pid_of
from tests.faults import failures
from tests.faults.loaded_receiver import LoadedReceiver, url_through
from tests.faults.proxy import Exchange, Failure, Proxy
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources

OUTAGE_S = float(os.environ.get("TRACE_DRAIN_TEST_OUTAGE_S", "2"))
"""How long ClickHouse is unavailable; ten minutes with `make faults`."""

pytestmark = pytest.mark.timeout(240 + 2 * OUTAGE_S)


@pytest.fixture(scope="module")
def receiver(
    server_url: str, upstream: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadedReceiver]:
    database = f"faults_{uuid4().hex}"
    store = engines.connected(server_url, database=database)
    with Proxy(upstream) as proxy:
        url = url_through(proxy, server_url, database)
        with LoadedReceiver(tmp_path_factory.mktemp("site"), url, store, proxy) as running:
            running.deliver()
            running.assert_kept()  # so that no fault affects the start
            yield running
    store.create_database()
    store.command(f"DROP DATABASE {database}")
    store.close()


@pytest.fixture(autouse=True)
def healed_after_each_test(receiver: LoadedReceiver) -> Iterator[None]:
    """Heal the proxy, so that a failed test does not fail the next."""
    yield
    receiver.proxy.heal()
    receiver.proxy.up()


@pytest.mark.fault("ClickHouse is unavailable for a time, under load")
def test_deliveries_are_accepted_while_clickhouse_is_unavailable_and_stored_afterwards(
    receiver: LoadedReceiver,
) -> None:
    with receiver.under_load():
        receiver.proxy.down()
        time.sleep(OUTAGE_S)
        receiver.wait_for_trouble("no answer")
        receiver.wait_until(
            lambda: receiver.metric("backlog_segments") > 1, "the backlog metric does not rise"
        )
        receiver.proxy.up()

    receiver.assert_kept(settle_s=PATIENCE_S + OUTAGE_S)
    assert set(receiver.answers) == {200}


@pytest.mark.fault("ClickHouse accepts connections and never answers, under load")
def test_deliveries_are_accepted_while_clickhouse_hangs(receiver: LoadedReceiver) -> None:
    with receiver.under_load():
        receiver.proxy.inject(failures.hung, on="any")
        accepted = receiver.answers[200]
        receiver.wait_until(lambda: receiver.answers[200] > accepted + 20, "no delivery is accepted")
        receiver.wait_until(lambda: len(receiver.backlog()) > 1, "the writer still stores segments")
        receiver.proxy.heal()

    receiver.assert_kept()
    assert set(receiver.answers) == {200}


@pytest.mark.fault("ClickHouse is slow and answers some INSERTs after their time-out, under load")
def test_slow_clickhouse_stores_every_row_once(receiver: LoadedReceiver) -> None:
    inserts_before = len(receiver.proxy.inserts)
    with receiver.under_load():
        receiver.proxy.inject(failures.slow(2.5), every=2, times=2)
        receiver.proxy.inject(failures.slow(0.3), on="any", times=10)
        receiver.proxy.wait_until(lambda: len(receiver.proxy.inserts) >= inserts_before + 4)

    receiver.assert_kept()


@pytest.mark.fault("the INSERT is applied and its response lost, every k-th time, under load")
def test_lost_responses_lose_and_duplicate_no_row(receiver: LoadedReceiver) -> None:
    with receiver.under_load():
        for every in (1, 2, 3):
            lost_before = receiver.proxy.failed_count
            receiver.proxy.inject(failures.lost, every=every, times=3)
            receiver.proxy.wait_until_failed(lost_before + 3)

    receiver.assert_kept()


@pytest.mark.fault(
    "the store process is killed during an INSERT, which is applied or not, and its response is lost"
)
def test_store_process_killed_during_an_insert_loses_and_duplicates_no_row(receiver: LoadedReceiver) -> None:
    def kill_store(exchange: Exchange) -> None:
        os.kill(pid_of(receiver, "store"), signal.SIGKILL)
        exchange.reset()

    def apply_and_kill_store(exchange: Exchange) -> None:
        exchange.forward()
        kill_store(exchange)

    with receiver.under_load():
        for failure in (apply_and_kill_store, kill_store):
            failed_before = receiver.proxy.failed_count
            receiver.proxy.inject(failure, times=1)
            receiver.proxy.wait_until_failed(failed_before + 1)

    receiver.assert_kept()
    assert receiver.metric("process_restarts_total") >= 2


REFUSED = [
    pytest.param(
        failures.error(252, "Too many parts (300)"), "INJECTED (252)", False, id="252 TOO_MANY_PARTS"
    ),
    pytest.param(failures.error(516), "INJECTED (516)", True, id="wrong credentials"),
    pytest.param(failures.page(503), "HTTP 503", False, id="503 of a proxy"),
    pytest.param(failures.page(307, Location="http://127.0.0.1:9/"), "HTTP 307", True, id="redirect"),
]


@pytest.mark.fault("ClickHouse, or a proxy in front of it, refuses every request for a while")
@pytest.mark.parametrize(("failure", "message", "needs_operator"), REFUSED)
def test_refused_segments_wait_and_are_stored_when_the_error_ends(
    receiver: LoadedReceiver, failure: Failure, message: str, *, needs_operator: bool
) -> None:
    alarms_before = receiver.metric("store_alarms_total")
    receiver.proxy.inject(failure, on="any")
    receiver.deliver(5)
    receiver.wait_for_trouble(message)
    receiver.wait_until(
        lambda: (receiver.metric("store_alarms_total") > alarms_before) == needs_operator,
        "the alarm metric is wrong",
    )
    receiver.proxy.heal()

    receiver.assert_kept()


@pytest.mark.fault(
    "table dropped under load, created again by `trace-drain schema apply` next to the receiver"
)
def test_running_receiver_stores_into_a_dropped_table_that_was_created_again(
    receiver: LoadedReceiver,
) -> None:
    receiver.assert_kept()
    for table in ("otel_traces", "otel_traces_trace_id_ts", "otel_traces_trace_id_ts_mv"):
        receiver.store.command(f"DROP TABLE {table} SYNC")
    receiver.sent.clear()
    receiver.deliver(5)
    receiver.wait_for_trouble("(60)")
    receiver.wait_until(lambda: receiver.metric("store_alarms_total"), "the alarm metric is not incremented")
    receiver.command("schema", "apply", *receiver.flags)

    receiver.assert_kept()


@pytest.mark.fault("column renamed under load, and renamed back")
def test_running_receiver_waits_while_the_table_is_altered_and_resumes_when_it_is_restored(
    receiver: LoadedReceiver,
) -> None:
    receiver.store.command("ALTER TABLE otel_traces RENAME COLUMN SpanName TO Name")
    receiver.deliver(5)
    receiver.wait_for_trouble("TABLE_ALTERED")
    receiver.store.command("ALTER TABLE otel_traces RENAME COLUMN Name TO SpanName")

    receiver.assert_kept()
    assert schema.apply(receiver.store, schema_sources(), 20_000) == []
