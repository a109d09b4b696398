"""Changes: what each type of webhook changes in the records of projects, deployments and installations.

Invariant: a webhook's change is durable before the note about it, and the note before its file is deleted. A
    crash in between repeats the change, which then changes nothing. The records decide by the time of
    creation, so that webhooks may be applied in any order and more than once.
The platform does not state the form of a payload: several spellings are accepted, and the note about a
payload without an object has the outcome unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from receiver.errors import place_and_reason
from receiver.logs import limited
from receiver.platform.installations.platform_records import PlatformRecords
from receiver.platform.webhooks.inbox import NO_BODY, Inbox, Note
from receiver.platform.webhooks.webhook import Webhook, as_object

Outcome = Literal["applied", "unchanged", "unknown", "duplicate"]

NAME_CHARS_MAX = 256
"""Length to which the name of a project is cut."""
_PROJECT_ID = ("project.id", "projectId", "project", "id")
_PROJECT_NAME = ("project.name", "projectName", "name")
_DEPLOYMENT_ID = ("deployment.id", "deploymentId", "deployment")
_PROJECT_OF_DEPLOYMENT = ("project.id", "projectId", "project", "deployment.projectId")
_DEPLOYMENT_TYPES = "deployment."
"""Beginning of the types of webhooks about deployments. The platform does not list these types."""
_INSTALLATION_ID = ("configuration.id", "configurationId", "configuration", "installationId", "id")
_SCOPES = ("configuration.scopes", "scopes")
_INSTALLATION_PREFIX = "icfg_"
"""Beginning of every id of an installation, which the platform states."""


class Applier:
    """Applies the webhooks of one inbox, and counts the outcomes."""

    def __init__(self, inbox: Inbox, records: PlatformRecords, now_s: Callable[[], float]) -> None:
        self._inbox = inbox
        self._records = records
        self._now_s = now_s
        self.outcomes: Counter[Outcome] = Counter()
        self.waiting_count = 0
        """Webhooks that could not be read or applied in the last round."""

    def apply_waiting(self) -> None:
        """Apply all waiting webhooks, oldest first. Raises `OSError` if the directory cannot be read."""
        failed_count = 0
        for webhook in self._inbox.waiting():
            try:
                self.outcomes[self._apply(webhook)] += 1
            # Other webhooks may change records that can be written.
            except OSError as error:
                failed_count += 1
                limited.error(
                    "webhook_apply",
                    "webhook cannot be applied; it is tried again",
                    error=place_and_reason(error),
                )
        self.waiting_count = failed_count + self._inbox.unreadable_count

    def forget_old(self, remembered_s: float) -> None:
        """Delete notes about webhooks received longer ago than this, and drafts of killed processes."""
        self._inbox.tidy()
        self._inbox.forget(int((self._now_s() - remembered_s) * 1_000))

    def _apply(self, webhook: Webhook) -> Outcome:
        if self._inbox.is_applied(webhook):
            outcome: Outcome = "duplicate"
        else:
            outcome = apply(webhook, self._records)
            self._inbox.note(self._note(webhook, outcome), webhook)
        self._inbox.discard(webhook)
        return outcome

    def _note(self, webhook: Webhook, outcome: Outcome) -> Note:
        return Note(
            id=webhook.id,
            type=webhook.type,
            created_at_ms=webhook.created_at_ms,
            received_at_ms=webhook.received_at_ms,
            applied_at_ms=int(self._now_s() * 1_000),
            outcome=outcome,
            body=webhook.body if outcome == "unknown" else NO_BODY,
        )


def apply(webhook: Webhook, records: PlatformRecords) -> Outcome:
    """Change the records durably. Raises `OSError`; then it must be applied again."""
    is_about_deployment = webhook.type.startswith(_DEPLOYMENT_TYPES)
    change = _deployment_reported if is_about_deployment else _CHANGE_OF.get(webhook.type)
    if change is None:
        return "unknown"
    document = dict(as_object(msgspec.json.decode(webhook.body)))
    # The id of the webhook, which is not that of a project.
    document.pop("id", None)
    is_changed = change(records, as_object(document.get("payload", document)), webhook.at_s)
    if is_changed is None:
        return "unknown"
    return "applied" if is_changed else "unchanged"


def _project_created(records: PlatformRecords, payload: Mapping[str, object], at_s: float) -> bool | None:
    project_id = _text_at(payload, _PROJECT_ID)
    # A project whose name is unknown is shown by its id.
    name = _text_at(payload, _PROJECT_NAME)[:NAME_CHARS_MAX]
    return records.projects.created(project_id, name, at_s) if project_id else None


def _project_removed(records: PlatformRecords, payload: Mapping[str, object], at_s: float) -> bool | None:
    project_id = _text_at(payload, _PROJECT_ID)
    return records.projects.removed(project_id, at_s) if project_id else None


def _deployment_reported(records: PlatformRecords, payload: Mapping[str, object], at_s: float) -> bool | None:
    deployment_id, project_id = _text_at(payload, _DEPLOYMENT_ID), _text_at(payload, _PROJECT_OF_DEPLOYMENT)
    if not (deployment_id and project_id):
        return None
    return records.deployments.assign(deployment_id, project_id, at_s)


def _installation_removed(
    records: PlatformRecords, payload: Mapping[str, object], at_s: float
) -> bool | None:
    installation_id = _installation_id(payload)
    return records.installations.set_state(installation_id, "removed", at_s) if installation_id else None


def _scopes_confirmed(records: PlatformRecords, payload: Mapping[str, object], at_s: float) -> bool | None:
    installation_id = _installation_id(payload)
    if not installation_id:
        return None
    listed = next((value for path in _SCOPES if isinstance(value := _at(payload, path), list)), None)
    # Without a list, the scopes are unknown: calls are tried again, and the platform's answers decide.
    scopes = None if listed is None else [scope for scope in listed if isinstance(scope, str)]
    return records.installations.set_scopes(installation_id, scopes, at_s)


_Change = Callable[[PlatformRecords, Mapping[str, object], float], bool | None]
"""Returns whether a record changed; `None` if the payload names no object."""
_CHANGE_OF: dict[str, _Change] = {
    "project.created": _project_created,
    "project.removed": _project_removed,
    "integration-configuration.removed": _installation_removed,
    "integration-configuration.scope-change-confirmed": _scopes_confirmed,
}


def _installation_id(payload: Mapping[str, object]) -> str:
    """Return the id of an installation in any field of the payload; empty if it has none or several."""
    named = [value for path in _INSTALLATION_ID if _is_installation_id(value := _at(payload, path))]
    found = {str(value) for value in named[:1]} or set(_installation_ids_in(payload))
    return found.pop() if len(found) == 1 else ""


def _is_installation_id(value: object) -> bool:
    return isinstance(value, str) and value.startswith(_INSTALLATION_PREFIX)


def _installation_ids_in(payload: object) -> Iterable[str]:
    # A list of values to visit, because the depth of the payload must not be that of the calls.
    values = [payload]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
        elif _is_installation_id(value):
            yield str(value)


def _text_at(payload: Mapping[str, object], paths: Iterable[str]) -> str:
    """Return the first text at these paths; empty if there is none."""
    return next((value for path in paths if isinstance(value := _at(payload, path), str) and value), "")


def _at(payload: Mapping[str, object], path: str) -> object:
    value: object = payload
    for key in path.split("."):
        value = as_object(value).get(key)
    return value
