"""`trace-drain platform …`: the hosting platform, its gateway and an emulator of both."""

from __future__ import annotations

import click

from receiver.cli.group import Group
from receiver.cli.platform_emulate import emulate
from receiver.cli.platform_events import events
from receiver.cli.platform_gateway import chat, models
from receiver.cli.platform_installations import installations
from receiver.cli.platform_microfrontends import microfrontends
from receiver.cli.platform_projects import keep_project, projects


@click.group(cls=Group)
def platform() -> None:
    """Call the hosting platform (events, microfrontends, language models), or emulate it."""


for command in (chat, emulate, events, installations, keep_project, microfrontends, models, projects):
    platform.add_command(command)
