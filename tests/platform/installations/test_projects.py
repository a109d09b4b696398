"""Names of projects, and their removal: in any order, revocable, durable."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from receiver.platform.installations import projects
from receiver.platform.installations.projects import Projects
from tests.support.cases import each_case
from tests.support.installations import T0_S


@each_case("order", permutations(range(4)))
def test_p50_order_of_events_has_no_influence(tmp_path: Path, order: tuple[int, ...]) -> None:
    directory = tmp_path / "".join(map(str, order))
    stored = Projects(directory)
    events = [
        lambda: stored.created("prj_1", "shop", T0_S),
        lambda: stored.removed("prj_1", T0_S + 1),
        lambda: stored.created("prj_1", "shop 2", T0_S + 2),
        lambda: stored.removed("prj_1", T0_S + 3),
    ]

    for number in order:
        events[number]()

    project = Projects(directory).all()[0]
    assert (project.name, project.removed_at_s, project.is_removed) == ("shop 2", T0_S + 3, True)
    assert (stored.name("prj_1"), stored.name("prj_2")) == ("shop 2", "")


def test_p50_revoked_removal_stays_revoked_until_the_project_is_removed_again(tmp_path: Path) -> None:
    stored = Projects(tmp_path)
    stored.created("prj_1", "shop", T0_S)
    stored.removed("prj_1", T0_S + 1)

    assert stored.revoke("prj_1")
    assert not stored.revoke("prj_1")
    assert not stored.revoke("prj_2")
    assert not stored.removed("prj_1", T0_S + 1)
    assert not Projects(tmp_path).all()[0].is_removed

    assert stored.removed("prj_1", T0_S + 2)
    assert Projects(tmp_path).all()[0].is_removed


def test_project_that_is_created_after_its_removal_is_not_removed(tmp_path: Path) -> None:
    stored = Projects(tmp_path)
    stored.removed("prj_1", T0_S)

    stored.created("prj_1", "shop", T0_S + 1)

    assert not stored.all()[0].is_removed


def test_number_of_projects_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projects, "PROJECTS_MAX", 2)
    stored = Projects(tmp_path)

    written = [stored.created(f"prj_{number}", "shop", T0_S) for number in range(3)]

    assert written == [True, True, False]
    assert stored.removed("prj_1", T0_S + 1)
    assert [project.id for project in Projects(tmp_path).all()] == ["prj_0", "prj_1"]
