"""Entry modules of the child processes: each loads the areas that its settings need, and no other."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from receiver.processes import intake_module, store_module
from receiver.settings import Access, Platform, Settings, Webhook
from tests.support.cases import each_case

AREAS = ("receiver.console", "receiver.platform", "trace_drain_testing")
ALONE = Settings(api=Access(enabled=False))
WITH_PLATFORM = Settings(
    platform=Platform(base_url="https://platform.example", webhook=Webhook(path="/hook"))
)


@cache
def areas_loaded_by(module: str) -> set[str]:
    program = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {area for area in AREAS if area in loaded}


@each_case(
    ("settings", "in_store", "in_intake"),
    [
        pytest.param(ALONE, set(), set(), id="receiver alone"),
        pytest.param(Settings(), {"receiver.console"}, set(), id="receiver and console"),
        pytest.param(
            WITH_PLATFORM,
            {"receiver.console", "receiver.platform"},
            {"receiver.platform"},
            id="with the platform and its webhooks",
        ),
    ],
)
def test_each_process_loads_only_the_configured_areas(
    settings: Settings, in_store: set[str], in_intake: set[str]
) -> None:
    assert areas_loaded_by(store_module(settings)) == in_store
    assert areas_loaded_by(intake_module(settings)) == in_intake
