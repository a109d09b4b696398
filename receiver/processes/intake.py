"""Intake process of the receiver alone."""

from __future__ import annotations

from receiver.intake.run import main

if __name__ == "__main__":
    main()
