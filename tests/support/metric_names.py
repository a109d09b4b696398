"""Names of the metrics as Prometheus stores them, and the metrics that an expression in PromQL uses."""

from __future__ import annotations

import re

from receiver.metrics import METRICS
from receiver.supervisor.admin import PREFIX


def exported_names() -> set[str]:
    """Return the names of all series."""
    suffixes = {"counter": ("_total",), "seconds": ("_bucket", "_sum", "_count")}
    return {
        PREFIX + name + suffix for name, spec in METRICS.items() for suffix in suffixes.get(spec.kind, ("",))
    }


def named_metrics(expression: str) -> set[str]:
    """Return the metrics of this receiver that an expression names."""
    return set(re.findall(rf"\b{PREFIX}\w+", expression))
