"""Switches of the emulator: faults to inject, and shapes of responses that the specification leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trace_drain_testing.emulator.refusals import bad_request

FAULTS = (
    *("api-late", "api-slow-bytes", "api-429", "api-500", "api-cut", "configuration-disabled"),
    *("ownership-lost", "events-twice", "events-out-of-order"),
    *("webhook-late", "webhook-twice", "webhook-out-of-order"),
    *("webhook-wrong-signature", "webhook-rotated-secret"),
)
"""Faults of the platform API and of webhooks; docs/platform.md describes each."""
FAULT_COUNT_MAX = 1_000_000
UNSTATED: Mapping[str, tuple[str, ...]] = {
    "P2": ("400", "403", "422"),
    "P6": ("object", "flat", "problem", "text"),
    "P11": ("full", "minimal"),
    "P20": ("stated", "extra"),
    "P22": ("common", "other-types"),
    "P25": ("json-lines", "without-keep-alive", "array", "event-stream"),
    "P26": ("common", "other-states"),
    "P31": ("common", "minimal", "renamed", "renamed-code"),
    "P32": ("common", "minimal", "extra"),
    "P32-errors": ("400-invalid_grant", "401-invalid_code", "403-expired"),
    "P42": ("transfer", "no-return"),
    "P51": ("common", "extra", "flat", "iso-time"),
    "P51-header": ("x-platform-signature", "x-signature"),
}
"""Shapes by rule of the specification; the first is the default."""


class Faults:
    """Faults to inject. A request or delivery uses up the fault that changes it."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.due: dict[str, int] = {}

    def add(self, name: str, count: int) -> None:
        """Inject a fault this many times. 0 ends it."""
        if name not in self.names:
            raise bad_request(f"no such fault; expected one of {', '.join(self.names)}")
        self.due.pop(name, None)
        if count:
            self.due[name] = count

    def take(self, name: str) -> bool:
        """Return whether a fault is due, and use it up."""
        left = self.due.get(name, 0)
        if left > 1:
            self.due[name] = left - 1
        else:
            self.due.pop(name, None)
        return left > 0


class Unstated:
    """The chosen shapes of responses that the specification leaves open."""

    def __init__(self, shapes: Mapping[str, tuple[str, ...]]) -> None:
        self.shapes = shapes
        self.chosen = {rule: names[0] for rule, names in shapes.items()}

    def switch(self, shapes: Mapping[str, str]) -> None:
        """Choose other shapes; all or none, if a rule or a shape is unknown."""
        for rule, shape in shapes.items():
            if rule not in self.shapes:
                raise bad_request(f"no such switch; expected one of {', '.join(self.shapes)}")
            if shape not in self.shapes[rule]:
                raise bad_request(f"{rule} has no such shape; expected one of {', '.join(self.shapes[rule])}")
        self.chosen.update(shapes)

    def shape_of(self, rule: str) -> str:
        return self.chosen[rule]
