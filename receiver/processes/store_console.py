"""Store process with the console."""

from __future__ import annotations

from collections.abc import Sequence

from receiver.console.feature import Console
from receiver.feature import Feature, StoreParts
from receiver.store_process.run import main


def features(parts: StoreParts) -> Sequence[Feature]:
    return (Console(parts),)


if __name__ == "__main__":
    main(features)
