"""`trace-drain platform …`: calls of the hosting platform and its gateway, and an emulator of both."""

from __future__ import annotations

import click

from receiver.cli.group import Group
from receiver.cli.platform_emulate import emulate
from receiver.cli.platform_events import events
from receiver.cli.platform_gateway import chat, models
from receiver.cli.platform_microfrontends import microfrontends


@click.group(cls=Group)
def platform() -> None:
    """Call the hosting platform (events, microfrontends, language models), or emulate it."""


for command in (chat, emulate, events, microfrontends, models):
    platform.add_command(command)
