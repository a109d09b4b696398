"""Project of a deployment, and the deployments that send spans now. Events do not name a project.

Never: assigns a deployment with spans of several projects to one of them, because its users would then see
events of another project.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from receiver.engine.store import TABLE, Store
from receiver.query.limits import SHORT_SETTINGS
from receiver.rollup.tables import DEPLOYMENTS

LIVE_S: Final = 60
"""Age of the newest span up to which a deployment counts as live."""
_PROJECTS: Final = f"""
SELECT groupUniqArray(2)(project) FROM (
    SELECT toString(ProjectId) AS project FROM {TABLE}
    WHERE DeploymentId = {{deployment:String}}
      AND Timestamp >= fromUnixTimestamp64Nano({{from_ns:Int64}})
      AND Timestamp < fromUnixTimestamp64Nano({{to_ns:Int64}})
    UNION ALL
    SELECT toString(ProjectId) AS project FROM {DEPLOYMENTS.table}
    WHERE DeploymentId = {{deployment:String}}
    UNION ALL
    SELECT toString(ProjectId) AS project FROM {DEPLOYMENTS.day_table}
    WHERE DeploymentId = {{deployment:String}}
)
{SHORT_SETTINGS}, max_threads = 1
"""  # noqa: S608 - constants
_LIVE: Final = f"""
SELECT toString(DeploymentId), max(Timestamp) AS newest FROM {TABLE}
WHERE Timestamp >= fromUnixTimestamp64Nano({{from_ns:Int64}}) AND startsWith(DeploymentId, 'dpl_')
GROUP BY DeploymentId
ORDER BY newest DESC, DeploymentId
LIMIT {{limit:UInt64}}
{SHORT_SETTINGS}, max_threads = 1
"""  # noqa: S608 - constants


class Period(NamedTuple):
    """A range of time, in seconds since 1970."""

    begin_s: float
    end_s: float


def project_of(store: Store, deployment: str, within: Period) -> str:
    """Return the project of the spans of a deployment; empty if they have none, or several.

    Reads the spans of a period, which the reader of a page may choose, and the rollups of all times: a period
    may have spans of one of the projects only.
    """
    bounds = {"from_ns": int(within.begin_s * 1e9), "to_ns": int(within.end_s * 1e9)}
    [(projects,)] = store.rows(_PROJECTS, {"deployment": deployment, **bounds})
    return str(projects[0]) if len(projects) == 1 else ""


def live_deployments(store: Store, now_s: float, count_max: int) -> list[str]:
    """Return the deployments that sent the newest spans."""
    bounds = {"from_ns": int((now_s - LIVE_S) * 1e9), "limit": count_max}
    return [str(deployment) for deployment, _ in store.rows(_LIVE, bounds)]
