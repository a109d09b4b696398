"""Check list of a drain: the steps of its deliveries, and a remedy for the first step that fails.

A received span proves the steps before it. Counters of requests begin at the receiver's start; the
ledger also covers earlier starts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Literal, NamedTuple

from receiver.console.api.source import Row
from receiver.console.ui.admin_port import AdminReport
from receiver.console.ui.numbers import ago
from receiver.console.ui.pages.receiver import OUTCOMES
from receiver.console.ui.view import View
from receiver.errors import ReceiverError, StoreTrouble
from receiver.refusals import REMEDIES
from receiver.settings import Drain, Settings
from receiver.sizes import counted, size_text

SINCE = "24h"
"""Age up to which a span counts as a proof."""
AUTHENTICATED = frozenset({"200", "400", "415"})
"""Answers to requests whose credentials were accepted."""


State = Literal["done", "failed", "waiting"]
StepResult = tuple[State, str]


class DeliveryStep(NamedTuple):
    """A step of a delivery, and whether any delivery has reached it."""

    name: str
    state: State
    text: str


class Evidence(NamedTuple):
    """Counts and spans that show which steps the deliveries of a drain reach."""

    statuses: Mapping[str, float] = {}
    """Requests by the status of their answer, since the start."""
    tests: float = 0
    elsewhere: float = 0
    """Number of requests for paths that belong to no drain."""
    accepted: float = 0
    """Number of spans accepted for storing since the start."""
    unresolved: float = 0
    """Number of accepted spans without a project since the start."""
    is_admin_port_unavailable: bool = False
    spans: Mapping[str, int] = {}
    """Spans of the last 24 hours by the fields of `OUTCOMES`, and `received`."""
    ledger_trouble: str = ""
    store_trouble: str = ""
    newest: Row | None = None
    """The last span received."""

    @property
    def received(self) -> int:
        """Return the number of received spans, which proves that deliveries are decoded."""
        return self.spans.get("received", 0)


async def evidence_of(view: View, drain: Drain) -> Evidence:
    """Return the evidence for the deliveries of a drain."""
    facts = view.facts
    admin = await facts.in_pool(facts.admin)
    spans, ledger_trouble = await _ledger_spans(view, drain.name)
    newest, trouble = None, facts.health().get("store", "")
    try:
        if spans["stored"]:
            newest = await _newest(view)
    except StoreTrouble as error:
        trouble = error.label
    return _requests(admin, drain.name)._replace(
        spans=spans, ledger_trouble=ledger_trouble, store_trouble=trouble, newest=newest
    )


def _requests(admin: AdminReport | None, drain: str) -> Evidence:
    if admin is None:
        return Evidence(is_admin_port_unavailable=True)
    return Evidence(
        statuses=admin.by("status", "deliveries_total", drain=drain),
        tests=admin.total("endpoint_tests_total", drain=drain),
        elsewhere=admin.total("deliveries_total", drain=""),
        accepted=admin.total("spans_accepted_total", drain=drain),
        unresolved=admin.total("spans_unresolved_total", drain=drain),
    )


async def _ledger_spans(view: View, drain: str) -> tuple[Counter[str], str]:
    """Return the spans of a drain by outcome, and why the ledger cannot be read."""
    spans: Counter[str] = Counter()
    try:
        answer = await view.facts.in_pool(lambda: view.facts.ledger({"since": SINCE, "drain": drain}))
    except ReceiverError as error:
        return spans, str(error)
    for line in answer.lines:
        spans.update({name: getattr(line, name) for name in ("received", *OUTCOMES)})
    return spans, ""


async def _newest(view: View) -> Row | None:
    answer = await view.source.ask("tail", {"since": SINCE, "limit": "1"})
    return answer.rows[0] if answer.rows else None


CONFIGURED = "In the settings"
"""Step before the others while a drain is being added."""
STEPS = ("Reached", "Signature and token accepted", "Decoded", "Project found", "Stored", "Readable")


def not_configured() -> list[DeliveryStep]:
    """Return the steps of a drain that is not in the settings yet."""
    missing = DeliveryStep(CONFIGURED, "waiting", "Not yet: paste the settings and reload the receiver.")
    return [missing, *(DeliveryStep(name, "waiting", "") for name in STEPS)]


def checks_of(settings: Settings, drain: Drain, evidence: Evidence) -> list[DeliveryStep]:
    """Return the steps of a delivery in their order."""
    results = (
        _reached(drain, evidence),
        _credentials(drain, evidence),
        _decoded(settings, drain, evidence),
        _project(settings, evidence),
        _stored(evidence),
        _readable(evidence),
    )
    return [DeliveryStep(name, *result) for name, result in zip(STEPS, results, strict=True)]


def verdict(checks: list[DeliveryStep]) -> DeliveryStep:
    """Return the first step that failed, else the first that waits, else that the drain is connected."""
    failed = [check for check in checks if check.state == "failed"]
    waiting = [check for check in checks if check.state == "waiting"]
    return next(iter([*failed, *waiting]), DeliveryStep("connected", "done", "The drain is connected."))


def _reached(drain: Drain, evidence: Evidence) -> StepResult:
    requests = sum(evidence.statuses.values()) + evidence.tests
    if requests:
        return "done", f"{counted(requests, 'request')} since the start."
    if evidence.received:
        return "done", "Before the last start."
    if evidence.elsewhere:
        return "failed", (
            f"{counted(evidence.elsewhere, 'request')} had a path of no drain. The path of this "
            f"drain is {drain.path}: correct the address that the sender uses."
        )
    if evidence.is_admin_port_unavailable:
        return "waiting", "Not known: the admin port did not answer."
    return "waiting", (
        "No request has arrived. Open the address of the endpoint from the sender's machine: it answers 200. "
        "If it does not, a firewall, a proxy or the name in the address is wrong."
    )


def _credentials(drain: Drain, evidence: Evidence) -> StepResult:
    needed = [*(["token"] if drain.tokens else []), *(["signature"] if drain.signature_header else [])]
    if evidence.received or AUTHENTICATED & evidence.statuses.keys():
        return "done", f"Checked: {' and '.join(needed)}." if needed else "This drain needs none."
    if number := evidence.statuses.get("401"):
        headers = [*([drain.header] if drain.tokens else []), *filter(None, [drain.signature_header])]
        return "failed", (
            f"{counted(number, 'request')} refused with 401: a credential is missing or unknown. "
            f"Let the sender set {' and '.join(headers) or 'no credentials'} as shown here."
        )
    if number := evidence.statuses.get("403"):
        return "failed", (
            f"{counted(number, 'request')} refused with 403: the signature does not match, or the token is "
            f"that of another path. {REMEDIES['not_allowed']}"
        )
    return "waiting", ""


def _decoded(settings: Settings, drain: Drain, evidence: Evidence) -> StepResult:
    if evidence.received or evidence.statuses.get("200"):
        return "done", f"{counted(evidence.received, 'span')} in the last 24 hours."
    limit = size_text(drain.body_bytes_max or settings.limits.body_bytes_max)
    causes = {
        "400": f"the body is not OTLP traces. {REMEDIES['malformed_body']}",
        "415": f"the content type is not supported. {REMEDIES['unsupported_media']}",
        "413": f"the body is larger than {limit}. {REMEDIES['body_too_large']}",
        "503": "the receiver was overloaded or its journal full. See the page Receiver.",
    }
    for status, cause in causes.items():
        if number := evidence.statuses.get(status):
            return "failed", f"{counted(number, 'request')} refused with {status}: {cause}"
    return "waiting", ""


def _project(settings: Settings, evidence: Evidence) -> StepResult:
    newest = evidence.newest
    if newest and newest["project"]:
        return "done", f"Newest: {newest['project']}."
    if evidence.accepted > evidence.unresolved:
        return "done", ""
    if evidence.accepted:
        keys = " or ".join(settings.resolve.project) or f"{settings.resolve.preset}.projectId"
        return "failed", (
            f"No span names its project, so spans are stored without one. Let the sender set {keys}, or "
            "name its attribute in [resolve]."
        )
    return "waiting", ""


def _stored(evidence: Evidence) -> StepResult:
    spans = evidence.spans
    if stored := spans.get("stored"):
        return "done", f"{counted(stored, 'span')} in the last 24 hours."
    if trouble := evidence.store_trouble:
        return "failed", (f"The store does not accept spans: {trouble}. They stay in the journal meanwhile.")
    for outcome, cause in (
        ("dead", "became dead letters: see the page Receiver."),
        ("sampled_out", "were sampled out: see [sampling]."),
        ("rejected", "were rejected: they have no valid trace id or span id."),
    ):
        if spans.get(outcome):
            return "failed", f"None yet; {counted(spans[outcome], 'span')} {cause}"
    # No failure: right after the start the ledger is still being read.
    trouble = evidence.ledger_trouble
    return "waiting", f"Stored spans are not counted: {trouble}." if trouble else ""


def _readable(evidence: Evidence) -> StepResult:
    if newest := evidence.newest:
        received = ago(newest["received_ms"] / 1_000, time.time())
        return "done", f"{newest['service']} {newest['name']}, received {received}."
    if evidence.store_trouble:
        return "failed", f"The store does not answer: {evidence.store_trouble}."
    return "waiting", ""
