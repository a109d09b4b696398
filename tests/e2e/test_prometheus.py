"""A real Prometheus scrapes the metrics of spans: every span counts once, and an alert fires and resolves."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.receiver_process import ReceiverProcess

PROMETHEUS: Final = shutil.which("prometheus")
DEPLOY: Final = Path(__file__).parents[2] / "deploy/prometheus"
TOKEN: Final = "token of prometheus"
CONFIG: Final = f"""
[api]
span_metrics = true
[[api.user]]
name = "prometheus"
token = "{TOKEN}"
"""
ALERT: Final = "TraceDrainRequestsFail"
SPANS: Final = 20


def body(trace: int, status: int) -> bytes:
    start_ns = time.time_ns()
    spans = [
        {
            "traceId": f"{trace + 1:032x}",
            "spanId": f"{span + 1:016x}",
            "name": "GET /checkout",
            "kind": 2,
            "status": {"code": status},
            "startTimeUnixNano": str(start_ns),
            "endTimeUnixNano": str(start_ns + 10**6 * 2**span),
        }
        for span in range(SPANS)
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode()


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, **query: str) -> Any:  # noqa: ANN401 - any JSON
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}") as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> Any:  # noqa: ANN401 - a sample or a histogram
        found = self.get("query", query=expression)["result"]
        return (found[0].get("histogram") or found[0]["value"])[1] if found else None

    def alert(self) -> dict[str, Any] | None:
        alerts = [each for each in self.get("alerts")["alerts"] if each["labels"]["alertname"] == ALERT]
        return next((each for each in alerts if each["state"] == "firing"), None)


def page(running: ReceiverProcess, path: str) -> bytes:
    """Return a page of the receiver, which must exist."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = running.state()["urls"]["api"].rstrip("/") + path
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        content: bytes = answer.read()
        return content


@contextmanager
def prometheus(directory: Path, api: str) -> Iterator[Prometheus]:
    """Run Prometheus with the files of deploy/ and shorter times."""
    assert PROMETHEUS is not None
    directory.mkdir()
    (directory / "token").write_text(TOKEN)
    config = (DEPLOY / "prometheus.yml").read_text().replace("receiver:8318", api.removeprefix("http://"))
    head = "global:\n  evaluation_interval: 1s"
    short = re.sub(r"(scrape_interval): 15s", r"\1: 1s", config).replace("global:", head)
    (directory / "prometheus.yml").write_text(short)
    rules = (DEPLOY / "span-rules.yml").read_text().replace("[5m]", "[15s]").replace("for: 5m", "for: 1s")
    (directory / "span-rules.yml").write_text(rules)
    shutil.copy(DEPLOY / "alerts.yml", directory)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        *(PROMETHEUS, f"--config.file={directory / 'prometheus.yml'}"),
        *(f"--storage.tsdb.path={directory / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"),
        "--enable-feature=native-histograms,exemplar-storage",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(60)


def or_none(read: Callable[[], Any]) -> Any:  # noqa: ANN401 - of any call
    """Return the result of a call; `None` while Prometheus starts."""
    try:
        return read()
    except OSError:
        return None


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed: apt-get install prometheus")
@pytest.mark.timeout(240)
def test_prometheus_counts_every_span_once_and_an_alert_fires_and_resolves(tmp_path: Path) -> None:
    sent = 0

    def send(running: ReceiverProcess, status: int) -> bool:
        nonlocal sent
        sent += 1
        assert running.post(body(sent, status)).status == 200
        time.sleep(0.2)
        return True

    with (
        ReceiverProcess(tmp_path, config=CONFIG) as running,
        prometheus(tmp_path / "prometheus", running.state()["urls"]["api"]) as found,
    ):
        running.wait_until(
            lambda: send(running, 2) and or_none(found.alert), "no alert fires while all requests fail"
        )
        alert = found.alert()
        assert alert is not None
        link = urllib.parse.urlsplit(alert["annotations"]["link"])
        assert b"GET /checkout" in page(running, f"{link.path}?{link.query}")

        running.kill(int(running.state()["pids"]["store"]))
        running.wait_until(
            lambda: send(running, 1) and or_none(found.alert) is None and sent > 100,
            "the alert does not resolve when no request fails any more",
        )
        count = sent * SPANS
        running.wait_until(
            lambda: found.value("sum(traces_spans_requests_total)") == str(count),
            "the counter differs from the spans that were sent",
        )
        histogram = found.value("sum(traces_spans_duration_seconds)")
        assert histogram["count"] == str(count)
        assert len(histogram["buckets"]) == SPANS
        exemplars = found.get(
            "query_exemplars",
            query="traces_spans_errors_total",
            start=str(time.time() - 300),
            end=str(time.time()),
        )
        assert exemplars[0]["exemplars"][0]["labels"]["trace_id"]
