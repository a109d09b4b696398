"""Packages and the workflow that releases them: their files, dependencies, permissions and order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

from tests.tidy.test_tidy import ROOT, ids, tracked

WORKFLOWS: Final = tracked(".github/workflows/*.yml")
VERSION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
MATURIN: Final = Path(sys.executable).with_name("maturin")


def workflow(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def jobs() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = workflow(ROOT / ".github/workflows/release.yml")["jobs"]
    return found


def steps_of_all_workflows() -> list[dict[str, Any]]:
    return [step for path in WORKFLOWS for job in workflow(path)["jobs"].values() for step in job["steps"]]


def maturin(*arguments: str) -> None:
    # Timestamps that a test sets must not depend on the machine.
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([str(MATURIN), *arguments], cwd=ROOT, env=environment, check=True, capture_output=True)


def test_every_action_has_a_version() -> None:
    actions = {step["uses"] for step in steps_of_all_workflows() if "uses" in step}

    assert len(actions) > 1
    assert {
        name for name in actions if not re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|stable|release/v1)", name)
    } == set()


def test_only_the_jobs_that_publish_may_write() -> None:
    assert {ids(path): workflow(path)["permissions"] for path in WORKFLOWS} == {
        ids(path): {"contents": "read"} for path in WORKFLOWS
    }
    assert {name: job["permissions"] for name, job in jobs().items() if "permissions" in job} == {
        "images": {"contents": "read", "packages": "write"},
        "publish": {"attestations": "write", "contents": "write", "id-token": "write", "packages": "write"},
    }


def test_publishing_waits_for_every_other_job() -> None:
    assert set(jobs()["publish"]["needs"]) == jobs().keys() - {"publish"}


def test_programs_of_the_workflow_have_the_locked_versions() -> None:
    (wheel,) = (step for step in jobs()["wheels"]["steps"] if "maturin-action" in step.get("uses", ""))
    lock = (ROOT / "requirements/build.lock").read_text()

    assert f"\nmaturin=={wheel['with']['maturin-version'].removeprefix('v')} " in f"\n{lock}"


def test_debian_package_has_the_program_and_the_user_of_the_unit() -> None:
    unit = (ROOT / "deploy/systemd/trace-drain.service").read_text()
    script = (ROOT / "deploy/deb/build.sh").read_text()
    (user,) = re.findall(r"^u (\S+) ", (ROOT / "deploy/deb/sysusers.conf").read_text())
    (program, config) = re.findall(r"^ExecStart=(\S+) serve --config (\S+)", unit, re.MULTILINE)[0]

    assert f"\nUser={user}\nGroup={user}\n" in unit
    assert f'ln -s {program} "$root/usr/bin/trace-drain"' in script
    assert f'echo {config} > "$root/DEBIAN/conffiles"' in script


def requirements_of(name: str, extra: str, found: set[str]) -> set[str]:
    """Return the names of the packages that a package needs on this system, directly or not."""
    for requirement in map(Requirement, requires(name) or []):
        if requirement.name not in found and (
            requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        ):
            found.add(requirement.name)
            requirements_of(requirement.name, "", found)
            for each in requirement.extras:
                requirements_of(requirement.name, each, found)
    return found


def test_slim_image_has_every_dependency_except_those_of_the_engine() -> None:
    lock = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements/serve.lock").read_text(), re.MULTILINE))
    (engine,) = re.findall(r"engine = /\^\(([\w|-]+)\)==/", (ROOT / "deploy/Dockerfile").read_text())
    names = {
        extra: {
            re.sub(r"[_.]", "-", name).lower()
            for name in requirements_of("trace-drain-receiver", extra, set())
        }
        for extra in ("", "embedded")
    }

    assert lock - set(engine.split("|")) == names[""]
    assert lock == names["embedded"]


@pytest.mark.skipif(not MATURIN.exists(), reason="maturin is not installed: requirements/build.lock")
def test_sdist_has_the_sources_of_the_wheel_and_no_test(tmp_path: Path) -> None:
    maturin("sdist", "--out", str(tmp_path))

    with tarfile.open(tmp_path / f"trace_drain_receiver-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {
        name
        for name in map(ids, tracked("receiver", "schemas", "transcode"))
        if not name.startswith(("transcode/examples/", "transcode/fuzz/", "transcode/tests/"))
    }
    files = {"LICENSE", "README.md", "pyproject.toml"}
    assert names == sources | files | {"PKG-INFO"}
    # The image is built from the same files.
    image = (ROOT / "deploy/Dockerfile").read_text()
    assert set(re.findall(r"COPY (.*\.toml.*) \./", image)[0].split()) == files
    assert files | {"receiver", "requirements", "schemas", "transcode"} == set(
        re.findall(r"^!(.*)$", (ROOT / "deploy/Dockerfile.dockerignore").read_text(), re.MULTILINE)
    )


# Compiles the core, unless `make setup` has done that.
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not MATURIN.exists(), reason="maturin is not installed: requirements/build.lock")
def test_wheel_has_the_package_and_nothing_else(tmp_path: Path) -> None:
    maturin("build", "--release", "--locked", "--out", str(tmp_path))

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if name.startswith(f"trace_drain_receiver-{VERSION}.dist-info/")}
    assert wheel.name.startswith(f"trace_drain_receiver-{VERSION}-cp311-abi3-")
    assert names - metadata == {ids(path) for path in tracked("receiver")} | {"receiver/_transcode.abi3.so"}
