"""The alert rules: their structure, their metrics and their runbooks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.metric_names import exported_names, named_metrics

ROOT = Path(__file__).parents[1]
HEAD: Final = "groups:\n  - name: trace-drain\n    rules:\n"
RULE: Final = re.compile(
    r"      - alert: (?P<name>[A-Z]\w+)\n"
    r"        expr: (?P<expr>[^\n'\"#]+)\n"
    r"(?:        for: (?P<wait>\d+[smh])\n)?"
    r"        labels:\n"
    r"          severity: (?P<severity>critical|warning)\n"
    r"        annotations:\n"
    r"          summary: '(?P<summary>(?:[^'\n]|'')+)'\n"
    r"          description: '(?P<description>(?:[^'\n]|'')+)'\n"
    r"          runbook: (?P<page>[\w./]+)#(?P<anchor>[\w-]+)\n"
)
"""A rule in the format of Prometheus, in the only order of fields that these rules have."""


class Rule(NamedTuple):
    """An alert rule."""

    name: str
    expr: str
    page: str
    anchor: str
    texts: str


def rules() -> list[Rule]:
    """Return the rules. Fails if a line of the file is not part of a rule."""
    _, _, text = (ROOT / "deploy/prometheus/alerts.yml").read_text().partition(HEAD)
    found = list(RULE.finditer(text))
    assert "".join(match[0] for match in found) == text
    return [
        Rule(each["name"], each["expr"], each["page"], each["anchor"], each["summary"] + each["description"])
        for each in found
    ]


def test_every_condition_that_needs_an_operator_has_one_rule() -> None:
    names = [rule.name.removeprefix("TraceDrain") for rule in rules()]

    assert len(names) == len(set(names))
    assert {
        "BacklogGrows",
        "CertificateExpires",
        "DeadLetters",
        "FailureBudgetLow",
        "JournalNearlyFull",
        "LedgerHistoryLost",
        "NoDeliveries",
        "StoreUnavailable",
    } <= set(names)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_every_metric_of_a_rule_is_exported(rule: Rule) -> None:
    used = named_metrics(rule.expr)

    assert used
    assert used - exported_names() == set()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_expression_has_balanced_brackets(rule: Rule) -> None:
    for opening, closing in ("()", "[]", "{}"):
        assert rule.expr.count(opening) == rule.expr.count(closing)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_runbook_is_a_heading_of_the_documentation(rule: Rule) -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / rule.page).read_text(), re.MULTILINE)

    assert rule.anchor in {heading.lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_label_in_a_text_is_a_label_of_the_metric(rule: Rule) -> None:
    page = (ROOT / "docs/metrics.md").read_text()

    for label in re.findall(r"\$labels\.(\w+)", rule.texts):
        for name in named_metrics(rule.expr.partition(" and on()")[0]):
            row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
            assert label in row.split("|")[3]
