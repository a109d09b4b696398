"""Child process that keeps webhooks and applies them, and prints each that it would acknowledge."""

from __future__ import annotations

import sys
from pathlib import Path

from receiver.platform.installations.platform_records import records_in
from receiver.platform.webhooks.changes import Applier
from receiver.platform.webhooks.inbox import Inbox
from receiver.platform.webhooks.webhook import parse
from receiver.settings import Webhook as Limits
from tests.crash.append_forever import report
from tests.support.webhooks import NOW_MS, document

NAMES = ("prj_a", "prj_b", "prj_a", "prj_c")


def main(data_dir: Path) -> None:
    """Keep webhooks, some of which are sent again, and apply them in between."""
    inbox = Inbox(data_dir)
    applier = Applier(inbox, records_in(data_dir / "platform"), lambda: NOW_MS / 1_000)
    for name in NAMES:
        payload = {"project": {"id": name, "name": f"name of {name}"}}
        try:
            inbox.keep(parse(document(name, payload=payload), NOW_MS), Limits())
        except OSError:
            report("refused", name)
        else:
            report("acknowledged", name)
        try:
            applier.apply_waiting()
        except OSError:
            report("unreadable", name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
