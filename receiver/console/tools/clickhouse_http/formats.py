"""Formats of answers, by the names that clients send, with their content types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from receiver.console.tools.clickhouse_http.errors import UNKNOWN_FORMAT, ClientError

_BINARY: Final = "application/octet-stream"
_JSON: Final = "application/json; charset=UTF-8"
_LINES: Final = "application/x-ndjson; charset=UTF-8"
_CSV: Final = "text/csv; charset=UTF-8"
_TABS: Final = "text/tab-separated-values; charset=UTF-8"
_PLAIN: Final = "text/plain; charset=UTF-8"
DEFAULT: Final = "TabSeparated"

CONTENT_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("JSON", "JSONCompact", "JSONStrings", "JSONCompactStrings"), _JSON),
    **dict.fromkeys(("JSONColumns", "JSONColumnsWithMetadata", "JSONObjectEachRow"), _JSON),
    **dict.fromkeys(("JSONEachRow", "JSONStringsEachRow", "JSONLines", "NDJSON"), _LINES),
    **dict.fromkeys(
        (f"JSONCompactEachRow{names}" for names in ("", "WithNames", "WithNamesAndTypes")), _LINES
    ),
    **dict.fromkeys(
        (f"JSONCompactStringsEachRow{names}" for names in ("", "WithNames", "WithNamesAndTypes")), _LINES
    ),
    **dict.fromkeys(
        ("Native", "RowBinary", "RowBinaryWithNames", "RowBinaryWithNamesAndTypes", "Parquet"), _BINARY
    ),
    "Arrow": "application/vnd.apache.arrow.file",
    "ArrowStream": "application/vnd.apache.arrow.stream",
    **dict.fromkeys((f"CSV{names}" for names in ("", "WithNames", "WithNamesAndTypes")), _CSV),
    **dict.fromkeys(
        (
            f"{form}{names}"
            for form in ("TSV", "TabSeparated", "TSVRaw", "TabSeparatedRaw")
            for names in ("", "WithNames", "WithNamesAndTypes")
        ),
        _TABS,
    ),
    **dict.fromkeys(
        (f"Pretty{table}{escapes}" for table in ("", "Compact", "Space") for escapes in ("", "NoEscapes")),
        _PLAIN,
    ),
    **dict.fromkeys(("PrettyCompactMonoBlock", "Vertical", "Markdown"), _PLAIN),
}
_NAME_OF: Final = {name.lower(): name for name in CONTENT_TYPES}


def format_named(name: str) -> str:
    """Return the engine's spelling of a format. Raises `ClientError` for a format that is not answered."""
    if (form := _NAME_OF.get(name.lower())) is None:
        raise ClientError(
            f"the format is not supported; expected one of {', '.join(CONTENT_TYPES)}", UNKNOWN_FORMAT
        )
    return form
