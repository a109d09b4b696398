"""Tests of the text of operating system errors."""

from pathlib import Path

import pytest

from receiver.errors import place_and_reason


def test_error_text_has_path_and_reason(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        tmp_path.read_bytes()

    assert place_and_reason(caught.value) == f"'{tmp_path}': Is a directory"


def test_error_text_without_a_path_has_the_reason_or_the_type() -> None:
    assert place_and_reason(OSError(5, "Input/output error")) == "Input/output error"
    assert place_and_reason(TimeoutError()) == "TimeoutError"
