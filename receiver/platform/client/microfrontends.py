"""Change of a microfrontends group: its name and its fallback environment."""

from __future__ import annotations

import msgspec

from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.errors import InvalidCall
from receiver.platform.client.json_text import as_object, converted


class Group(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    name: str | None = None
    slug: str | None = None
    """Derived from the name: a new name changes it."""
    fallback_environment: str | None = None


class _Updated(msgspec.Struct, rename="camel"):
    updated_microfrontends_group: Group


async def update_group(
    client: PlatformClient, group: str, *, name: str | None = None, fallback_environment: str | None = None
) -> tuple[Group, dict[str, object]]:
    """Change a group, and return it with all fields of the answer.

    `fallback_environment`: `SAME_ENV`, `PRODUCTION`, or the slug of a custom environment.
    """
    changes = {"name": name, "fallbackEnvironment": fallback_environment}
    body = {field: text for field, text in changes.items() if text is not None}
    if not body:
        raise InvalidCall("nothing to change; expected a name, a fallback environment, or both")
    path = ("v1", "teams", client.require_team_id(), "microfrontends", group)
    answer = await client.patch(path, body)
    what = "the answer"
    updated = converted(answer, _Updated, what).updated_microfrontends_group
    return updated, as_object(as_object(answer, what)["updatedMicrofrontendsGroup"], what)
