"""`trace-drain serve` started during a fault, and faults that need a separate receiver."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import trustme

from receiver.engine.clickhouse import ClickHouseStore
from tests.faults.loaded_receiver import LoadedReceiver, url_through
from tests.faults.proxy import Proxy
from tests.faults.test_tables import COLLECTOR_TABLE
from tests.support import engines

DAY_S = 86_400

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def store(server_url: str) -> Iterator[ClickHouseStore]:
    """The database, which does not exist yet, not through the proxy."""
    store = engines.connected(server_url, database=f"faults_{uuid4().hex}")
    yield store
    store.create_database()
    store.command(f"DROP DATABASE {name_of(store)}")
    store.close()


def name_of(store: ClickHouseStore) -> str:
    return store._database  # noqa: SLF001 - the test chose it


@pytest.mark.fault("ClickHouse is unavailable when the receiver starts, until the journal is full")
def test_receiver_started_without_clickhouse_accepts_deliveries_up_to_the_journal_limit_and_stores_them_later(
    server_url: str, proxy: Proxy, store: ClickHouseStore, tmp_path: Path
) -> None:
    proxy.down()
    url = url_through(proxy, server_url, name_of(store))
    with LoadedReceiver(tmp_path, url, store, proxy, journal_bytes_max=1 << 19) as receiver:
        with receiver.under_load(pause_s=0.0):
            receiver.wait_until(lambda: receiver.answers[503], "the journal limit is not reached")
            receiver.wait_for_trouble("no answer")
            receiver.wait_until(lambda: receiver.metric("backlog_bytes"), "the backlog metric is 0")
            proxy.up()

        receiver.assert_kept()


@pytest.mark.fault(
    "ClickHouse is unavailable when the receiver restarts: the ledger accounts for every span meanwhile"
)
def test_ledger_of_a_receiver_restarted_without_clickhouse_accounts_for_every_span(
    server_url: str, proxy: Proxy, store: ClickHouseStore, tmp_path: Path
) -> None:
    with LoadedReceiver(tmp_path, url_through(proxy, server_url, name_of(store)), store, proxy) as receiver:
        receiver.deliver(2)
        receiver.assert_kept()
        before = totals(receiver)
        receiver.stop()
        proxy.down()
        receiver.start()
        receiver.deliver(3)

        receiver.wait_until(
            lambda: receiver.metric("ledger_spans"), "the ledger metric is not exported", patience_s=15
        )
        during = totals(receiver)
        assert during["stored"] == before["stored"] > 0
        assert during["journal"] == during["received"] - before["received"] > 0
        assert during["difference"] == 0
        assert receiver.metric("redelivery_window_seconds") == DAY_S
        assert receiver.metric("redelivery_entries") == 2
        assert receiver.trouble == f"schema: no answer at 127.0.0.1:{proxy.port}: connection refused"

        proxy.up()
        receiver.assert_kept()
        after = totals(receiver)
        assert (after["received"], after["journal"], after["difference"]) == (during["received"], 0, 0)


@pytest.mark.fault(
    "DATA/ledger and DATA/redelivery are deleted while the receiver waits for ClickHouse since its start"
)
def test_deleted_files_are_recreated_while_the_receiver_waits_for_its_store(
    server_url: str, proxy: Proxy, store: ClickHouseStore, tmp_path: Path
) -> None:
    proxy.down()
    with LoadedReceiver(tmp_path, url_through(proxy, server_url, name_of(store)), store, proxy) as receiver:
        refused = receiver.run_command("dead", "replay", "some-letter")
        assert "tables are not known to be up to date yet" in refused.stdout
        for directory in (tmp_path / "ledger", tmp_path / "redelivery"):
            is_present = partial(has_log_file, directory)
            receiver.wait_until(is_present, f"{directory.name} has no log", patience_s=15)
            shutil.rmtree(directory)
            receiver.wait_until(is_present, f"{directory.name} is not recreated")
        proxy.up()

        receiver.assert_kept()


def has_log_file(directory: Path) -> bool:
    return any(directory.glob("*.log"))


@pytest.mark.fault("the table `otel_traces` of a Collector exists when the receiver starts")
def test_receiver_waits_until_the_table_of_a_collector_is_renamed(
    server_url: str, proxy: Proxy, store: ClickHouseStore, tmp_path: Path
) -> None:
    store.create_database()
    store.command(COLLECTOR_TABLE)
    with LoadedReceiver(tmp_path, url_through(proxy, server_url, name_of(store)), store, proxy) as receiver:
        receiver.deliver(3)
        receiver.wait_for_trouble("RENAME TABLE otel_traces TO otel_traces_before")
        receiver.wait_until(
            lambda: receiver.metric("store_alarms_total"), "the alarm metric is not incremented"
        )
        store.command("RENAME TABLE otel_traces TO otel_traces_before")

        receiver.assert_kept()


@pytest.mark.fault("the server's TLS certificate is not trusted at first, and again later")
def test_segments_wait_until_the_certificate_of_the_server_is_trusted(
    server_url: str,
    upstream: tuple[str, int],
    store: ClickHouseStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trusted, untrusted = trustme.CA(), trustme.CA()
    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with Proxy(upstream, tls=server_context(untrusted)) as proxy:
        url = url_through(proxy, server_url, name_of(store), scheme="https")
        with LoadedReceiver(tmp_path, url, store, proxy) as receiver:
            receiver.deliver(3)
            receiver.wait_for_trouble("CERTIFICATE_REFUSED")
            receiver.wait_until(
                lambda: receiver.metric("store_alarms_total"), "the alarm metric is not incremented"
            )
            proxy.tls = server_context(trusted)
            receiver.assert_kept()

            proxy.tls = server_context(untrusted)
            proxy.down()
            proxy.up()
            receiver.deliver(3)
            receiver.wait_for_trouble("CERTIFICATE_REFUSED")
            proxy.tls = server_context(trusted)

            receiver.assert_kept()


def totals(receiver: LoadedReceiver) -> dict[str, int]:
    """Sum the columns of `trace-drain ledger` over all lines."""
    answer = json.loads(receiver.command("ledger", "--format", "json"))
    assert not answer["trouble"]
    names = ("received", "stored", "journal", "difference")
    return {name: sum(line[name] for line in answer["lines"]) for name in names}


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    """Return the TLS context of a server with a certificate of this authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context
