"""A real receiver, started as an operator would, on free ports and in its own data directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.receiver_process import ReceiverProcess


@pytest.fixture(scope="session")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    """A receiver with one open drain, shared by all tests: each recognizes its own spans."""
    with ReceiverProcess(tmp_path_factory.mktemp("receiver")) as running:
        yield running
