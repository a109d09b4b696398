"""`trace-drain serve` before a server that goes wrong, under load: one receiver for all cases here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from receiver.engine import schema
from tests.e2e.test_kill import pid_of
from tests.faults import wrongs
from tests.faults.proxy import Exchange, Proxy, Wrong
from tests.faults.site import SETTLE_S, Site, url_through
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources

OUTAGE_S = float(os.environ.get("TRACE_DRAIN_TEST_OUTAGE_S", "2"))
"""How long ClickHouse is away; `make faults` gives it ten minutes."""
WHILE_S = 2.0
"""How long it hangs, or is slow."""

pytestmark = pytest.mark.timeout(240 + 2 * OUTAGE_S)


@pytest.fixture(scope="module")
def site(
    server_url: str, upstream: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    database = f"faults_{uuid4().hex}"
    store = engines.connected(server_url, database=database)
    with Proxy(upstream) as proxy:
        url = url_through(proxy, server_url, database)
        with Site(tmp_path_factory.mktemp("site"), url, store, proxy) as running:
            running.deliver()
            running.assert_kept()  # whatever goes wrong later, it does not meet a start
            yield running
    store.create_database()
    store.command(f"DROP DATABASE {database}")
    store.close()


@pytest.fixture(autouse=True)
def mended_in_the_end(site: Site) -> Iterator[None]:
    """A case that fails must not fail the next."""
    yield
    site.proxy.mend()
    site.proxy.up()


@pytest.mark.fault("ClickHouse is gone for a time, under load")
def test_while_clickhouse_is_gone_deliveries_are_taken_and_stored_when_it_is_back(site: Site) -> None:
    with site.under_load():
        site.proxy.down()
        time.sleep(OUTAGE_S)
        site.wait_for_trouble("no answer")
        site.wait_until(lambda: site.metric("backlog_segments") > 1, "the backlog is not told")
        site.proxy.up()

    site.assert_kept(settle_s=SETTLE_S + OUTAGE_S)
    assert set(site.answers) == {200}


@pytest.mark.fault("ClickHouse accepts and never answers, under load")
def test_while_clickhouse_hangs_deliveries_are_taken(site: Site) -> None:
    with site.under_load():
        site.proxy.meet(wrongs.hung, on="any")
        time.sleep(WHILE_S)
        site.proxy.mend()

    site.assert_kept()
    assert set(site.answers) == {200}


@pytest.mark.fault("ClickHouse is slow, and answers some INSERTs after their time-out, under load")
def test_a_slow_clickhouse_gets_every_row_once(site: Site) -> None:
    with site.under_load():
        site.proxy.meet(wrongs.slow(2.5), every=2, times=2)
        site.proxy.meet(wrongs.slow(0.3), on="any", times=10)
        time.sleep(WHILE_S)

    site.assert_kept()


@pytest.mark.fault("the INSERT is applied and its answer lost, every k-th time, under load")
@pytest.mark.parametrize("every", [1, 2, 3])
def test_lost_answers_cost_and_double_nothing(site: Site, every: int) -> None:
    lost_before = site.proxy.harmed
    with site.under_load():
        site.proxy.meet(wrongs.lost, every=every, times=3)
        site.proxy.wait_until_harmed(lost_before + 3)

    site.assert_kept()


@pytest.mark.fault("the INSERT is applied, the answer lost, and the store process killed at that moment")
@pytest.mark.parametrize("is_applied", [True, False], ids=["applied", "not applied"])
def test_a_store_process_killed_in_an_insert_costs_and_doubles_nothing(
    site: Site, *, is_applied: bool
) -> None:
    def killed(exchange: Exchange) -> None:
        if is_applied:
            exchange.forward()
        os.kill(pid_of(site, "store"), signal.SIGKILL)
        exchange.reset()

    harmed_before = site.proxy.harmed
    with site.under_load():
        for count in (1, 2):
            site.proxy.meet(killed, times=1)
            site.proxy.wait_until_harmed(harmed_before + count)

    site.assert_kept()
    assert site.metric("process_restarts_total") >= 2


REFUSED = [
    pytest.param(wrongs.error(252, "Too many parts (300)"), "INJECTED (252)", False, id="252 TOO_MANY_PARTS"),
    pytest.param(wrongs.error(516), "INJECTED (516)", True, id="wrong credentials"),
    pytest.param(wrongs.page(503), "HTTP 503", False, id="503 of a proxy"),
    pytest.param(wrongs.page(307, Location="http://127.0.0.1:9/"), "HTTP 307", True, id="redirect"),
]


@pytest.mark.fault("ClickHouse, or what is before it, refuses everything, and is later right")
@pytest.mark.parametrize(("wrong", "told", "needs_a_human"), REFUSED)
def test_what_is_refused_waits_is_told_and_goes_in_later(
    site: Site, wrong: Wrong, told: str, *, needs_a_human: bool
) -> None:
    alarms_before = site.metric("store_alarms_total")
    site.proxy.meet(wrong, on="any")
    site.deliver(5)
    site.wait_for_trouble(told)
    site.wait_until(
        lambda: (site.metric("store_alarms_total") > alarms_before) == needs_a_human, "alarms are not told"
    )
    site.proxy.mend()

    site.assert_kept()


@pytest.mark.fault("table dropped under load, made again by `trace-drain schema apply` beside the receiver")
def test_a_dropped_table_is_made_again_beside_the_running_receiver(site: Site) -> None:
    site.assert_kept()
    for table in ("otel_traces", "otel_traces_trace_id_ts", "otel_traces_trace_id_ts_mv"):
        site.store.command(f"DROP TABLE {table} SYNC")
    site.fates.clear()
    site.deliver(5)
    site.wait_for_trouble("(60)")
    site.wait_until(lambda: site.metric("store_alarms_total"), "alarms are not told")
    site.command("schema", "apply", *site.flags)

    site.assert_kept()


@pytest.mark.fault("column renamed under load, and back")
def test_an_altered_table_is_held_for_and_mended_beside_the_running_receiver(site: Site) -> None:
    site.store.command("ALTER TABLE otel_traces RENAME COLUMN SpanName TO Name")
    site.deliver(5)
    site.wait_for_trouble("TABLE_ALTERED")
    site.store.command("ALTER TABLE otel_traces RENAME COLUMN Name TO SpanName")

    site.assert_kept()
    assert schema.apply(site.store, schema_sources(), 20_000) == []
