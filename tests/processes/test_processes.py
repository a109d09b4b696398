"""Entry modules of the child processes: each loads the areas that its settings need, and no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection

import pytest

from receiver.processes import intake_module, store_module
from receiver.settings import Access, Platform, Settings, Webhook

AREAS = ("receiver.console", "receiver.platform", "trace_drain_testing")
ALONE = Settings(api=Access(enabled=False))
WITH_PLATFORM = Settings(
    platform=Platform(base_url="https://platform.example", webhook=Webhook(path="/hook"))
)


def areas_loaded_by(module: str) -> set[str]:
    program = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {area for area in AREAS if area in loaded}


@pytest.mark.parametrize(
    ("settings", "areas"),
    [
        pytest.param(ALONE, set(), id="receiver alone"),
        pytest.param(Settings(), {"receiver.console"}, id="receiver and console"),
        pytest.param(WITH_PLATFORM, {"receiver.console", "receiver.platform"}, id="with the platform"),
    ],
)
def test_store_process_loads_only_the_configured_areas(settings: Settings, areas: Collection[str]) -> None:
    assert areas_loaded_by(store_module(settings)) == areas


@pytest.mark.parametrize(
    ("settings", "areas"),
    [
        pytest.param(ALONE, set(), id="receiver alone"),
        pytest.param(Settings(), set(), id="receiver and console"),
        pytest.param(WITH_PLATFORM, {"receiver.platform"}, id="with webhooks"),
    ],
)
def test_intake_process_loads_the_platform_only_for_webhooks(
    settings: Settings, areas: Collection[str]
) -> None:
    assert areas_loaded_by(intake_module(settings)) == areas
