"""Overview: its sentence agrees with the verdicts in its rows."""

from __future__ import annotations

from collections.abc import Mapping

from receiver.console.api.source import Answer
from receiver.errors import MalformedBody
from tests.console.ui.conftest import StartSite
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import page_of
from tests.support.cases import each_case


class TwoDeployments(FakeSource):
    """Source of a project with the deployments `a` and `b`, and spans without a deployment."""

    def __init__(self, verdict: str = "", new_errors: int = 0) -> None:
        super().__init__()
        self.compared = {"a": "a", "b": "b", "verdict": verdict, "totals": {"new_errors": new_errors}}

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        times = {"first_seen": query["since"], "last_seen": query["until"]}
        percentiles = {"p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0}
        row = {
            "spans": 9,
            "errors": 0,
            "error_rate": 0.0,
            "rate_per_s": 1.0,
            "project": "prj_1",
            **percentiles,
            **times,
        }
        if name == "compare":
            if not self.compared["verdict"] or (query["a"], query["b"]) != ("a", "b"):
                raise MalformedBody("no span in the time range is of this deployment", field="a")
            return Answer([self.compared])
        if name == "deployments":
            return Answer([{**row, "deployment": deployment} for deployment in ("b", "", "a")])
        return Answer([{**row, "group": "prj_1", "start": query["since"]}])


@each_case(
    ("verdict", "new_errors", "times"),
    [
        ("b is worse: web GET / errors 0 % → 9 %", 0, 2),
        ("b has 2 new errors; no measurable change in 3 operations", 2, 2),
        ("b compared with a: no measurable change in 3 operations", 0, 1),
    ],
)
async def test_sentence_of_the_overview_agrees_with_its_rows(
    start_site: StartSite, verdict: str, new_errors: int, times: int
) -> None:
    page = await page_of(await start_site(TwoDeployments(verdict, new_errors)), "/")

    assert page.text.count(verdict) == times
    assert ("Nothing got worse since the last deployment." in page.text) == (times == 1)


async def test_overview_says_when_no_deployments_could_be_compared(start_site: StartSite) -> None:
    page = await page_of(await start_site(TwoDeployments()), "/")

    assert "Nothing got worse" not in page.text
    assert "No two deployments of a project could be compared in this time." in page.text
    assert "not compared" in page.text
