"""Deployments that send spans now."""

from __future__ import annotations

from typing import Final

from receiver.engine.sql_text import compose
from receiver.engine.store import Store

LIVE_S: Final = 60
"""Age of the newest span up to which a deployment counts as live."""
_LIVE: Final = compose("""
SELECT toString(DeploymentId), max(Timestamp) AS newest FROM {table}
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}) AND startsWith(DeploymentId, 'dpl_')
GROUP BY DeploymentId
ORDER BY newest DESC, DeploymentId
LIMIT {limit:UInt64}
{short_settings}, max_threads = 1
""")


def live_deployments(store: Store, now_s: float, count_max: int) -> list[str]:
    """Return the deployments that sent the newest spans."""
    bounds = {"from_ns": int((now_s - LIVE_S) * 1e9), "limit": count_max}
    return [str(deployment) for deployment, _ in store.rows(_LIVE, bounds)]
