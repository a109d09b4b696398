"""Intake process that also accepts the webhooks of the hosting platform."""

from __future__ import annotations

from receiver.intake.run import main
from receiver.platform.webhooks.keeper import webhook_keeper

if __name__ == "__main__":
    main(webhook_keeper)
