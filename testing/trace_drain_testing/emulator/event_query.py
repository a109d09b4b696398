"""Parameters of a request for deployment events, and the selection of events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from trace_drain_testing.emulator.deployments import Event
from trace_drain_testing.emulator.refusals import bad_request

ALL_EVENTS = -1
LIMIT_DEFAULT = 1_000
BUILD_TYPES: Final = frozenset({"stdout", "stderr", "command", "exit", "delimiter"})
"""Types of the events of a build."""
_STATUS_RANGE: Final = re.compile(r"([1-5])xx|([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?")
_BUILD: Final = re.compile(r"bld_[A-Za-z0-9]+")
_NAMES: Final = {"1": True, "0": False}


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selection and order of events."""

    direction: Literal["forward", "backward"]
    is_followed: bool
    limit: int
    build: str
    since_ms: float
    until_ms: float
    statuses: range | None
    has_delimiters: bool
    has_builds: bool

    def selects(self, event: Event) -> bool:
        """Return whether an event is part of the response."""
        if not self.since_ms <= event["created"] <= self.until_ms:
            return False
        if not self.has_delimiters and event["type"] == "delimiter":
            return False
        if not self.has_builds and event["type"] in BUILD_TYPES:
            return False
        return self._has_build(event) and self._has_status(event)

    def select(self, events: Iterable[Event]) -> list[Event]:
        """Return the selected events in order, up to the limit."""
        is_backward = self.direction == "backward"
        selected = filter(self.selects, events)
        ordered = sorted(selected, key=lambda event: event["created"], reverse=is_backward)
        return ordered if self.limit == ALL_EVENTS else ordered[: self.limit]

    def _has_build(self, event: Event) -> bool:
        info = event["payload"].get("info")
        return not self.build or (isinstance(info, dict) and info.get("name") == self.build)

    def _has_status(self, event: Event) -> bool:
        if self.statuses is None:
            return True
        payload = event["payload"]
        proxy = payload.get("proxy")
        status = payload.get("statusCode", proxy.get("statusCode") if isinstance(proxy, dict) else None)
        return status in self.statuses


def parse_query(parameters: Mapping[str, str]) -> EventQuery:
    """Parse the parameters of a request. Raises `Refusal`."""
    direction = parameters.get("direction", "forward")
    if direction not in {"forward", "backward"}:
        raise bad_request("direction is not valid; expected forward or backward")
    build = parameters.get("name", "")
    if build and not _BUILD.fullmatch(build):
        raise bad_request("name is not valid; expected a build id such as bld_1")
    limit = _number(parameters, "limit", LIMIT_DEFAULT)
    if limit < ALL_EVENTS or limit != int(limit):
        raise bad_request("limit is not valid; expected a number of events, or -1 for all")
    return EventQuery(
        direction="backward" if direction == "backward" else "forward",
        is_followed=_flag(parameters, "follow", default=False),
        limit=int(limit),
        build=build,
        since_ms=_number(parameters, "since", float("-inf")),
        until_ms=_number(parameters, "until", float("inf")),
        statuses=_status_range(parameters.get("statusCode", "")),
        has_delimiters=_flag(parameters, "delimiter", default=True),
        has_builds=_flag(parameters, "builds", default=True),
    )


def _flag(parameters: Mapping[str, str], name: str, *, default: bool) -> bool:
    if name not in parameters:
        return default
    if parameters[name] not in _NAMES:
        raise bad_request(f"{name} is not valid; expected 0 or 1")
    return _NAMES[parameters[name]]


def _number(parameters: Mapping[str, str], name: str, default: float) -> float:
    if name not in parameters:
        return default
    try:
        number = msgspec.json.decode(parameters[name].encode(), type=int | float)
    except msgspec.DecodeError:
        raise bad_request(f"{name} is not valid; expected a number") from None
    return number


def _status_range(text: str) -> range | None:
    if not text:
        return None
    match = _STATUS_RANGE.fullmatch(text)
    if match is None:
        raise bad_request("statusCode is not valid; expected a status such as 503, or a range such as 5xx")
    if match[1]:
        return range(int(match[1]) * 100, int(match[1]) * 100 + 100)
    return range(int(match[2]), int(match[3] or match[2]) + 1)
