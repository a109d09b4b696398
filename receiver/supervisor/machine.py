"""What must be there before anything starts."""

from __future__ import annotations

import resource
import sys

from receiver.config.checks import require_engine
from receiver.errors import OperatorError
from receiver.settings import Settings


def raise_file_limit() -> None:
    """Let every process open as many files as it may; they inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_machine(settings: Settings) -> None:
    """Raises `OperatorError` naming what is missing and how to get it."""
    if not sys.platform.startswith("linux"):
        raise OperatorError(f"the platform is '{sys.platform}'; expected Linux")
    require_engine(settings)
