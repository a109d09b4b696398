"""Child process that keeps webhooks and applies them, and prints each that it would acknowledge."""

from __future__ import annotations

import sys
from pathlib import Path

from receiver.platform.installations.projects import Projects
from receiver.platform.webhooks.applying import Applier
from receiver.platform.webhooks.inbox import Inbox
from receiver.platform.webhooks.webhook import parse
from receiver.settings import Webhook as Limits
from tests.crash.append_forever import report
from tests.support.webhooks import NOW_MS, RecordsDouble, document

NAMES = ("prj_a", "prj_b", "prj_a", "prj_c")


class Records:
    """Records of projects on the disk. No webhook of the child concerns a deployment or an installation."""

    def __init__(self, data_dir: Path) -> None:
        self.projects = Projects(data_dir / "platform")
        self.deployments = self.installations = RecordsDouble()


def main(data_dir: Path) -> None:
    """Keep webhooks, some of which are sent again, and apply them in between."""
    inbox = Inbox(data_dir)
    applier = Applier(inbox, Records(data_dir), lambda: NOW_MS / 1_000)
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
