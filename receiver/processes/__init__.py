"""Entry modules of the child processes, one for each choice of areas. Only the chosen areas are imported.

api.enabled   [platform]     store process                       intake process
false         not set        receiver.processes.store            receiver.processes.intake
true          not set        receiver.processes.store_console    receiver.processes.intake
true          set            receiver.processes.store_platform   receiver.processes.intake_webhooks
"""

from __future__ import annotations

from receiver.settings import Platform, Settings


def store_module(settings: Settings) -> str:
    if settings.platform != Platform():
        return f"{__name__}.store_platform"
    return f"{__name__}.store_console" if settings.api.enabled else f"{__name__}.store"


def intake_module(settings: Settings) -> str:
    # Not only with a path of webhooks, which a reload may set.
    return f"{__name__}.intake" if settings.platform == Platform() else f"{__name__}.intake_webhooks"
