"""Spans sent by the Python OpenTelemetry SDK with default settings are stored completely."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.e2e.receiver_process import ReceiverProcess

SENDER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop", "1.2.3")
sold = {"cart.items": 3, "ok": True}
with tracer.start_as_current_span("checkout", kind=trace.SpanKind.SERVER, attributes=sold):
    with tracer.start_as_current_span("charge") as child:
        child.add_event("card read", {"card": "visa"})
        child.set_status(trace.Status(trace.StatusCode.ERROR, "declined"))
provider.shutdown()
"""


def send_trace(running: ReceiverProcess, **environment: str) -> None:
    host, port = running.address
    settings = {name: value.format(host=host, port=port) for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SENDER],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Failed" not in done.stderr


def test_trace_of_the_sdk_with_default_settings_is_stored_completely(receiver: ReceiverProcess) -> None:
    started = time.time_ns()

    send_trace(
        receiver,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://{host}:{port}",
        OTEL_SERVICE_NAME="sdk",
        OTEL_RESOURCE_ATTRIBUTES="platform.projectId=prj_1,platform.deploymentId=dpl_1",
    )

    rows = {row["SpanName"]: row for row in receiver.spans_once_stored(2) if row["ServiceName"] == "sdk"}
    root, child = rows["checkout"], rows["charge"]
    assert root["SpanKind"] == "Server"
    assert root["SpanAttributes"] == {"cart.items": "3", "ok": "true"}
    assert (root["ScopeName"], root["ScopeVersion"]) == ("shop", "1.2.3")
    assert (root["ProjectId"], root["DeploymentId"], root["ParentSpanId"]) == ("prj_1", "dpl_1", "")
    assert root["ResourceAttributes"]["telemetry.sdk.language"] == "python"
    assert (child["TraceId"], child["ParentSpanId"]) == (root["TraceId"], root["SpanId"])
    assert (child["StatusCode"], child["StatusMessage"]) == ("Error", "declined")
    assert child["Events.Name"] == ["card read"]
    assert child["Events.Attributes"] == [{"card": "visa"}]
    assert 0 < child["Duration"] <= root["Duration"] < time.time_ns() - started


def test_sdk_endpoint_without_a_path_works(receiver: ReceiverProcess) -> None:
    send_trace(receiver, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://{host}:{port}", OTEL_SERVICE_NAME="bare")

    stored = receiver.spans_once_stored(2)
    assert {row["SpanName"] for row in stored if row["ServiceName"] == "bare"} == {"checkout", "charge"}
