"""Connection for untrusted statements: an answer is whole, or reading it raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from receiver.engine import pieces as pieces_module
from receiver.engine.pieces import ReadOnlyClient
from receiver.errors import StoreTrouble


@pytest.mark.parametrize(
    ("pieces", "form"),
    [
        ([b"PAR1 rows", b"Code: 159"], "parquet"),
        ([b"PAR1", b"PA"], "parquet"),
        ([b'{"a":1}\nCode: 159'], "lines"),
    ],
)
def test_incomplete_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], form: str
) -> None:
    def sent(*_arguments: Any) -> Iterator[bytes]:  # noqa: ANN401 - as the driver
        return iter(pieces)

    monkeypatch.setattr(pieces_module, "pieces_of", sent)
    connection = ReadOnlyClient(None)  # type: ignore[arg-type]  # it is not asked

    with pytest.raises(StoreTrouble):
        list(getattr(connection, form)("SELECT 1"))
