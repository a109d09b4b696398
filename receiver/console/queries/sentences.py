"""Sentences of the questions: for the help of commands, the list of commands and the description of the API.

Never: imports the queries, because the list of commands is printed without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SENTENCES: Final[Mapping[str, str]] = {
    "search": "Search traces by a filter, those with the newest matching spans first.",
    "spans": "Search spans, newest first.",
    "services": "List the services that sent spans, with their numbers of spans, errors and operations.",
    "operations": "List the operations of SERVICE with spans, errors and percentiles of their duration.",
    "attributes": "List the attributes of spans and resources, or the values of the attribute KEY.",
    "tail": "List the spans that were received last; the command continues as new spans arrive.",
    "service-map": (
        "List the calls between services, with errors and percentiles of the duration of each edge."
    ),
    "red": "Print rate, errors and durations of requests by service or another field or attribute.",
    "chart": (
        "Print a measure of requests by up to two fields or attributes: the largest groups and the rest."
    ),
    "latency": "Print how the durations of requests are distributed over time, as a heatmap.",
    "errors": "List the errors by service, type and message, with placeholders for numbers and ids.",
    "deployments": "List the deployments that sent spans, the newest first.",
    "deployment-events": "List the stored events of DEPLOYMENT: build log, changes of state, requests.",
    "compare": "Compare the deployment B with the deployment A: is B worse, and where?",
    "shifts": "Show which attribute values occur more often in the spans that match FILTER than in others.",
}
