"""docs/protocol.md lists every message that a client can receive, and no other."""

from __future__ import annotations

import re

from tests.support.client_messages import messages
from tests.tidy.test_tidy import ROOT

ITEM = re.compile(r"^- (?:`` (.+) ``|`(.+)`)$", re.MULTILINE)


def listed() -> list[str]:
    _, _, section = (ROOT / "docs/protocol.md").read_text().partition("\n## Messages\n")
    return [double or single for double, single in ITEM.findall(section)]


def test_every_message_to_a_client_is_documented() -> None:
    assert sorted(messages() - set(listed())) == []


def test_every_documented_message_is_sent_by_the_code() -> None:
    assert sorted(set(listed()) - messages()) == []


def test_no_message_is_documented_twice() -> None:
    assert sorted(listed()) == sorted(set(listed()))
