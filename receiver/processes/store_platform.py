"""Store process with the console and the hosting platform's side."""

from __future__ import annotations

from collections.abc import Sequence

from receiver.console.feature import Console
from receiver.feature import Feature, StoreParts
from receiver.platform.feature import PlatformSide
from receiver.store_process.run import main


def features(parts: StoreParts) -> Sequence[Feature]:
    """Return the console, which is served first, so that its health checks work, and the platform's side."""
    platform = PlatformSide(parts)
    return (Console(parts, platform.extension), platform)


if __name__ == "__main__":
    main(features)
