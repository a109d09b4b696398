"""An operator finds a failing trace, and the deployment that caused it, by the command line alone."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from tests.e2e.receiver_process import ReceiverProcess

REQUESTS = 60
"""Requests of each deployment, of two spans each."""


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def request_spans(rng: random.Random, started_ns: int, *, is_failing: bool) -> list[dict[str, Any]]:
    """Return the spans of a request: checkout in a service, which writes to a database."""
    trace_id, span_id = f"{rng.getrandbits(127) + 1:032x}", f"{rng.getrandbits(63) + 1:016x}"
    duration_ns = round(rng.lognormvariate(17, 0.3))
    ended = {"startTimeUnixNano": str(started_ns), "endTimeUnixNano": str(started_ns + duration_ns)}
    order = rng.randrange(10**6)
    error = {"status": {"code": 2, "message": f"order {order}: card expired"}} if is_failing else {}
    return [
        {"traceId": trace_id, "spanId": span_id, "name": "POST /checkout", "kind": 2, **ended, **error},
        {
            "traceId": trace_id,
            "spanId": f"{rng.getrandbits(63) + 1:016x}",
            "parentSpanId": span_id,
            "name": "INSERT orders",
            "kind": 3,
            **ended,
        },
    ]


def traffic(deployment: str, age_s: int, failing_share: float, service: str = "shop") -> bytes:
    """Return a delivery with the requests of ten minutes of a deployment."""
    rng = random.Random(deployment)
    first_ns = time.time_ns() - age_s * 10**9
    spans = [
        span
        for number in range(REQUESTS)
        for span in request_spans(
            rng, first_ns + number * 10 * 10**9, is_failing=rng.random() < failing_share
        )
    ]
    resource = {
        "attributes": [
            attribute("service.name", service),
            attribute("platform.projectId", "prj_shop"),
            attribute("platform.deploymentId", deployment),
        ]
    }
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode()


def test_command_line_identifies_the_deployment_that_fails(receiver: ReceiverProcess) -> None:
    for deployment, age_s, share in (("dpl_good", 3_000, 0.0), ("dpl_bad", 1_500, 0.4)):
        assert receiver.post(traffic(deployment, age_s, share)).status == 200
    receiver.spans_once_stored(4 * REQUESTS)

    def ask(*arguments: str) -> list[dict[str, Any]]:
        output = receiver.command(*arguments, "--format", "json")
        return [json.loads(line) for line in output.splitlines()]

    failing = ask("search", "service=shop", "status=error")
    (caused_by,) = ask("deployments", "--filter", f"trace={failing[0]['trace_id']}")
    listed = ask("deployments", "--filter", "service=shop")
    (comparison,) = ask("compare", "dpl_good", "dpl_bad")
    shifted = ask("shifts", "service=shop status=error", "--against", 'name="POST /checkout"')
    report = receiver.command("compare", "dpl_good", "dpl_bad").splitlines()

    assert caused_by["deployment"] == "dpl_bad"
    assert [row["deployment"] for row in listed] == ["dpl_bad", "dpl_good"]
    assert [row["errors"] for row in listed] == [len(failing), 0]
    assert comparison["verdict"].startswith("dpl_bad is worse: shop POST /checkout errors 0 % → ")
    changes = {row["name"]: row["change"] for row in comparison["operations"]}
    assert changes == {"POST /checkout": "more errors", "INSERT orders": "same"}
    (error,) = comparison["new_errors"]
    assert error["message"] == "order <number>: card expired"
    assert error["count"] == len(failing)
    assert error["trace_id"] in {row["trace_id"] for row in failing}
    assert ("deployment", "dpl_bad") in {(row["key"], row["value"]) for row in shifted[:4]}
    assert report[0] == comparison["verdict"]


def test_comparison_with_a_mistyped_deployment_suggests_the_stored_id(receiver: ReceiverProcess) -> None:
    assert receiver.post(traffic("dpl_typed", 1_200, 0, "typed")).status == 200
    receiver.spans_once_stored(2 * REQUESTS)

    failed = receiver.run_command("compare", "dpl_typed", "dpl_tped")

    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("trace-drain: b: no span in the time range is of this deployment")
    assert "did you mean 'dpl_typed'?" in failed.stderr
