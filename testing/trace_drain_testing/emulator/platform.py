"""State of the emulated platform. It is in memory: a new process starts without it, with the same ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from trace_drain_testing.emulator import drains, switches
from trace_drain_testing.emulator.clock import Clock
from trace_drain_testing.emulator.deployments import OBJECTS_MAX, Deployment, MicrofrontendsGroup, Project
from trace_drain_testing.emulator.drains import Drains
from trace_drain_testing.emulator.gateway import gateway, gateway_wire
from trace_drain_testing.emulator.gateway.gateway import Gateway
from trace_drain_testing.emulator.ids import Ids
from trace_drain_testing.emulator.installations import (
    SCOPES,
    EmulatedInstallations,
    Installation,
    parse_scopes,
)
from trace_drain_testing.emulator.refusals import bad_request, conflict, not_found
from trace_drain_testing.emulator.switches import Faults, Unstated
from trace_drain_testing.emulator.webhooks import Webhooks

PROJECT_NAMES = ("storefront", "checkout")
"""Names of the initial projects; each has a deployment."""
INITIAL_REDIRECT = "https://receiver.example/platform/installed"
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_REDIRECT_NAMES: Mapping[str, Mapping[str, str]] = {
    "minimal": {"code": "code", "state": "state"},
    "renamed": {
        "code": "code",
        "state": "state",
        "configurationId": "installation",
        "teamId": "team",
        "next": "continue",
    },
    "renamed-code": {"code": "authorization_code", "state": "state"},
}
"""Names of the parameters of the redirect by shape of P31; parameters that are not listed are left out."""
FAULTS = (*switches.FAULTS, *gateway.FAULTS, *drains.FAULTS)
UNSTATED = {**switches.UNSTATED, **drains.UNSTATED, **gateway_wire.UNSTATED}


@dataclass(frozen=True, slots=True)
class Secrets:
    client_id: str
    client_secret: str
    api_key: str


class Platform:
    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock = clock
        self.ids = Ids(seed)
        self.faults = Faults(FAULTS)
        self.unstated = Unstated(UNSTATED)
        new = self.ids.new
        self.secrets = Secrets(new("oac_"), new("secret_"), new("key_"))
        self.team_id, self.team_slug, self.owner_id = new("team_"), "acme", new("usr_")
        self.webhooks = Webhooks(clock, self.ids, self.faults, self.unstated, new("whsec_"))
        self.installations = EmulatedInstallations(
            clock, self.ids, self._notify, lambda: self.unstated.shape_of("P42") == "transfer"
        )
        self.gateway = Gateway(self.secrets.api_key, self.faults.take, self.unstated.shape_of, clock.now_s)
        self.drains = Drains(
            clock.now_s, clock.sleep, self.faults.take, self._are_drains_paused, seed=str(seed)
        )
        self.projects: dict[str, Project] = {}
        self.groups: dict[str, MicrofrontendsGroup] = {}
        self.deployments: dict[str, Deployment] = {}
        self.is_stopping = False
        self._add_initial_objects()

    def _add_initial_objects(self) -> None:
        first = self.install(is_team=True, scopes=SCOPES, redirect_uri=INITIAL_REDIRECT, webhook_url="")
        self.installations.exchange(first.code.text, INITIAL_REDIRECT)
        for name in PROJECT_NAMES:
            project = Project(self.ids.new("prj_"), name)
            self.projects[project.id] = project
            self.add_deployment("", project.id, "")
        group = MicrofrontendsGroup(self.ids.new("mfe_"), "Web shop", "web-shop")
        self.groups[group.id] = group

    @property
    def first_token(self) -> str:
        return next(iter(self.installations.by_id.values())).token

    def install(
        self, *, is_team: bool, scopes: Iterable[str], redirect_uri: str, webhook_url: str
    ) -> Installation:
        """Install the integration on the team, or on an account."""
        if len(self.installations.by_id) >= OBJECTS_MAX:
            raise conflict(f"there are {OBJECTS_MAX} installations")
        for name, url in (("redirect_uri", redirect_uri), ("webhook_url", webhook_url)):
            if url and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
                raise bad_request(f"{name} is not valid; expected an http or https URL")
        return self.installations.add(
            self.team_id if is_team else None,
            parse_scopes(scopes),
            redirect_uri=redirect_uri,
            webhook_url=webhook_url,
            owner=self.owner_id,
        )

    def redirect_of(self, installation: Installation, state: str, following: str) -> str:
        """Return the URL to which the browser is redirected after the installation."""
        values = {
            "code": installation.code.text,
            "configurationId": installation.id,
            "teamId": installation.team_id or "",
            "state": state,
            "next": following,
        }
        names = _REDIRECT_NAMES.get(self.unstated.shape_of("P31"))
        if names is not None:
            values = {names[name]: value for name, value in values.items() if name in names}
        url = installation.code.redirect_uri
        return url + ("&" if urlsplit(url).query else "?") + urlencode({k: v for k, v in values.items() if v})

    def add_project(self, project_id: str, name: str) -> Project:
        """Create a project, and send `project.created`."""
        made = Project(self._new_id(project_id, "prj_", self.projects), name)
        if not name:
            raise bad_request("name is empty; expected the name of the project")
        self.projects[made.id] = made
        self.send("project.created", {"project": {"id": made.id, "name": made.name}})
        return made

    def remove_project(self, project_id: str) -> None:
        """Remove a project with its deployments, and send `project.removed`."""
        removed = self.projects.pop(project_id, None)
        if removed is None:
            raise not_found("project")
        for deployment in [each for each in self.deployments.values() if each.project == project_id]:
            del self.deployments[deployment.id]
            # Ends the followed streams of its events.
            deployment.set_state("CANCELED", self.clock.now_ms())
        self.send("project.removed", {"project": {"id": removed.id, "name": removed.name}})

    def add_deployment(self, deployment_id: str, project_id: str, url: str) -> Deployment:
        if project_id not in self.projects:
            raise not_found("project")
        if url and not _HOST.fullmatch(url):
            raise bad_request("url is not valid; expected a host name")
        made_id = self._new_id(deployment_id, "dpl_", self.deployments)
        host = url or f"{made_id.removeprefix('dpl_').lower()}.{self.team_slug}.example"
        if any(each.url == host for each in self.deployments.values()):
            raise conflict("another deployment has this url")
        made = Deployment(made_id, project_id, host, "QUEUED", self.clock.now_ms())
        self.deployments[made.id] = made
        return made

    def deployment(self, id_or_url: str) -> Deployment:
        """Return a deployment by its id or its host name."""
        found = self.deployments.get(id_or_url) or next(
            (each for each in self.deployments.values() if each.url == id_or_url), None
        )
        if found is None:
            raise not_found("deployment")
        return found

    def send(self, kind: str, payload: Mapping[str, object]) -> int:
        """Send a webhook to each installation with a webhook URL. Return their number."""
        # Before the URLs are read, because an overdue installation is deleted and gets no more webhooks.
        self.installations.delete_due()
        receiving = [
            each
            for each in self.installations.by_id.values()
            if each.webhook_url and each.state in {"active", "disabled"}
        ]
        for installation in receiving:
            self._send_to(installation, kind, payload)
        return len(receiving)

    def lose_ownership(self) -> None:
        """Disable every active installation: the owners of the integration left the responsible team."""
        for installation in self.installations.by_id.values():
            if installation.state == "active":
                self.installations.disable(installation)

    def stop(self) -> None:
        self.is_stopping = True
        for deployment in self.deployments.values():
            deployment.changed.notify()

    def _notify(self, installation: Installation, kind: str) -> None:
        if installation.webhook_url:
            self._send_to(installation, kind, {})

    def _send_to(self, installation: Installation, kind: str, payload: Mapping[str, object]) -> None:
        summary = installation.summary()
        configuration = {"id": installation.id, "scopes": summary["scopes"]}
        about: dict[str, Any] = {"configuration": configuration, "user": {"id": installation.user_id}}
        if installation.team_id:
            about["team"] = {"id": installation.team_id}
        self.webhooks.add(kind, {**about, **payload}, installation.webhook_url, installation)

    def _are_drains_paused(self) -> bool:
        states = {each.state for each in self.installations.by_id.values()}
        return self.unstated.shape_of("P41") == "paused" and "disabled" in states

    def _new_id(self, object_id: str, prefix: Literal["prj_", "dpl_"], objects: Mapping[str, object]) -> str:
        if len(objects) >= OBJECTS_MAX:
            raise conflict(f"{OBJECTS_MAX} objects exist; delete one first")
        if object_id in objects:
            raise conflict("the id is taken")
        if object_id and not (_ID.fullmatch(object_id) and object_id.startswith(prefix)):
            raise bad_request(f"id is not valid; expected {prefix} and letters or digits")
        self.ids.reserve(object_id)
        return object_id or self.ids.new(prefix)
