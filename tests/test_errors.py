"""What the system refused is told with its place."""

from pathlib import Path

import pytest

from receiver.errors import place_and_reason


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        tmp_path.read_bytes()

    assert place_and_reason(caught.value) == f"'{tmp_path}': Is a directory"


def test_what_names_no_file_is_told_by_its_reason_or_kind() -> None:
    assert place_and_reason(OSError(5, "Input/output error")) == "Input/output error"
    assert place_and_reason(TimeoutError()) == "TimeoutError"
