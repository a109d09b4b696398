"""`trace-drain platform …`: the hosting platform, its gateway and an emulator of both."""

from __future__ import annotations

import click

from receiver.cli.platform.platform_events import events
from receiver.cli.platform.platform_gateway import chat, models
from receiver.cli.platform.platform_installations import installations
from receiver.cli.platform.platform_microfrontends import microfrontends
from receiver.cli.platform.platform_projects import keep_project, projects
from receiver.cli.shell.group import CommandGroup
from receiver.cli.shell.test_kit import test_kit_command


@click.group(cls=CommandGroup)
def platform() -> None:
    """Call the hosting platform (events, microfrontends, language models), or emulate it."""


for command in (chat, events, installations, keep_project, microfrontends, models, projects):
    platform.add_command(command)
platform.add_command(test_kit_command("emulate"), "emulate")
