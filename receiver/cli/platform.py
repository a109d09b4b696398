"""`trace-drain platform`: commands about the hosting platform."""

from __future__ import annotations

import click

from receiver.cli.group import Group
from receiver.cli.platform_emulate import emulate


@click.group(cls=Group)
def platform() -> None:
    """Use the hosting platform's API and gateway, or emulate them."""


platform.add_command(emulate)
