"""Values that the questions ask for, chosen from the generated spans."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from benchmarks.store.bodies import SHARED_SERVICE
from benchmarks.store.queries import RARE_KEY, between
from receiver.engine.store import TABLE, Store


class Values(NamedTuple):
    """A period, and names that occur in it."""

    began: datetime
    ended: datetime
    project: str
    deployments: tuple[str, str]
    """Two deployments of the project."""
    service: str
    """A service that only this project has."""
    trace_id: str
    rare_value: str

    @property
    def day(self) -> tuple[datetime, datetime]:
        """Start and end of the day that is asked for: the last but one, not an end of the period."""
        return self.ended - timedelta(days=2), self.ended - timedelta(days=1)


def choose_values(store: Store, began: datetime, ended: datetime) -> Values:
    """Choose a project of average size, and names of this project, from the day that is asked for."""
    day = between(ended - timedelta(days=2), ended - timedelta(days=1))
    project, deployments = store.rows(
        f"SELECT ProjectId, arraySort(groupUniqArray(2)(toString(DeploymentId))) AS two "  # noqa: S608 - constants
        f"FROM {TABLE} WHERE {day} GROUP BY ProjectId HAVING length(two) = 2 "
        f"ORDER BY abs(count() - (SELECT count() / uniqExact(ProjectId) FROM {TABLE} WHERE {day})), "
        "ProjectId LIMIT 1"
    )[0]
    service, trace_id, rare_value = store.rows(
        f"SELECT ServiceName, TraceId, SpanAttributes['{RARE_KEY}'] AS rare FROM {TABLE} "  # noqa: S608 - as above
        f"WHERE {day} AND ProjectId = {{project:String}} AND rare != '' "
        f"AND ServiceName != '{SHARED_SERVICE}' "
        "ORDER BY Timestamp LIMIT 1",
        {"project": project},
    )[0]
    return Values(began, ended, project, (deployments[0], deployments[1]), service, trace_id, rare_value)
