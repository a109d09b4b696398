"""Requirements of the machine, checked before any process starts."""

from __future__ import annotations

import resource
import sys

from receiver.config.checks import require_engine
from receiver.errors import OperatorError
from receiver.settings import Settings


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit; child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Every connection needs a descriptor, and the usual soft limit of 1024 is meant for `select`.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_machine(settings: Settings) -> None:
    """Raise `OperatorError` if a requirement is missing; the message says how to install it."""
    if not sys.platform.startswith("linux"):
        raise OperatorError(f"the platform is '{sys.platform}'; expected Linux")
    require_engine(settings)
