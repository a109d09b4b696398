"""Parameters of a request, as ClickHouse's clients send them: text, format, values, limits and settings.

Invariant: only listed parameters are accepted, and none is passed on by its name alone: a setting of the
    engine receives a checked value. A limit is at most the limit of the receiver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from receiver.console.queries.raw_sql.client_statement import LIMITS, ClientStatement
from receiver.console.queries.raw_sql.statement import QUERY_CHARS_MAX
from receiver.console.tools.clickhouse_http import errors
from receiver.console.tools.clickhouse_http.formats import DEFAULT, format_named

READ_ONLY: Final = "this endpoint is read-only; expected SELECT, SHOW, DESCRIBE or EXPLAIN"
_VALUE: Final = "param_"
_FLAG: Final = re.compile("0|1|true|false")
_NUMBER: Final = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,9})?")
_PLAIN_NAME: Final = re.compile("[a-z0-9_]{1,64}")
_REVISION: Final = re.compile("[0-9]{1,6}")
# Possessive (`*+`): the time to refuse any text is in proportion to its length.
_TRAILING_FORMAT: Final = re.compile(r"\bFORMAT\s++([A-Za-z]\w*+)\s*+;?+\s*+$", re.IGNORECASE)
_FIRST_WORD: Final = re.compile(r"(?:\s|\(|--[^\n]*+(?:\n|$)|/\*.*?\*/)*+([A-Za-z]++)", re.DOTALL)
_CHANGES: Final = frozenset(
    {
        *(
            "ALTER",
            "ATTACH",
            "BACKUP",
            "CHECK",
            "COPY",
            "CREATE",
            "DELETE",
            "DETACH",
            "DROP",
            "EXCHANGE",
            "GRANT",
        ),
        *("INSERT", "KILL", "MOVE", "OPTIMIZE", "RENAME", "REPLACE", "RESTORE", "REVOKE", "SET", "SYSTEM"),
        *("TRUNCATE", "UNDROP", "UPDATE", "USE"),
    }
)
"""First words of statements that change something."""
_CHOSEN: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        (
            "output_format_json_quote_64bit_integers",
            "output_format_json_quote_denormals",
            "output_format_json_quote_decimals",
            "output_format_json_named_tuples_as_objects",
            "output_format_json_array_of_rows",
            "output_format_json_escape_forward_slashes",
            "output_format_csv_crlf_end_of_line",
            "output_format_arrow_string_as_string",
            "output_format_arrow_low_cardinality_as_dictionary",
            "output_format_parquet_string_as_string",
            "join_use_nulls",
        ),
        _FLAG,
    ),
    "date_time_output_format": re.compile("simple|iso|unix_timestamp"),
    "output_format_arrow_compression_method": re.compile("none|lz4_frame|zstd"),
    "output_format_parquet_compression_method": re.compile("none|lz4|zstd|gzip|snappy|brotli"),
}
"""Settings of the engine that change the form of an answer only, with their values."""
_FIXED: Final[Mapping[str, errors.Code]] = {
    "readonly": errors.READONLY,
    "compress": errors.NOT_IMPLEMENTED,
    "decompress": errors.NOT_IMPLEMENTED,
}
"""Parameters with one accepted value, which describes the endpoint, and the error for other values."""
_VALUES_OF: Final = {
    **_CHOSEN,
    "readonly": re.compile("1|2"),
    "compress": re.compile("0|false"),
    "decompress": re.compile("0|false"),
}
_IGNORED: Final = frozenset(
    {
        *("user", "password", "quota_key", "query_id", "session_id", "session_check", "session_timeout"),
        *(
            "allow_experimental_analyzer",
            "enable_analyzer",
            "date_time_input_format",
            "log_comment",
            "log_queries",
        ),
        *("buffer_size", "wait_end_of_query", "enable_http_compression", "send_progress_in_http_headers"),
        *("http_headers_progress_interval_ms", "http_write_exception_in_output_format"),
        *("cancel_http_readonly_queries_on_client_close", "enable_full_text_index"),
        *("query_plan_max_limit_for_lazy_materialization", "query_plan_max_limit_for_top_k_optimization"),
        *("query_plan_optimize_lazy_materialization", "use_skip_indexes_for_disjunctions"),
        *("use_skip_indexes_for_top_k", "use_skip_indexes_on_data_read"),
    }
)
"""Ignored parameters: names, sessions (the endpoint has no state) and hints for the speed."""
_READ_ELSEWHERE: Final = frozenset(("query", "default_format", "database", "client_protocol_version"))


def statement_of(
    query: Mapping[str, str], body: str, default_format: str, own_database: str
) -> ClientStatement:
    """Return the statement of a request. `default_format`: of its header. Raises `ClientError`."""
    # ClickHouse joins them in the same way. Most clients send only one.
    text = "\n".join(part for part in (query.get("query", ""), body) if part)
    _check_text(text)
    if query.get("database", "") not in ("", "default", own_database):
        raise errors.ClientError(
            f"the database does not exist; expected {own_database}", errors.UNKNOWN_DATABASE
        )
    revision = query.get("client_protocol_version", "0")
    if not _REVISION.fullmatch(revision):
        raise errors.ClientError("client_protocol_version: expected a whole number", errors.BAD_ARGUMENTS)
    form = query.get("default_format") or default_format or DEFAULT
    if match := _TRAILING_FORMAT.search(text):
        text, form = text[: match.start()], match[1]
    return ClientStatement(
        text, format_named(form), int(revision), _values_of(query), dict(_settings_of(query))
    )


def _check_text(text: str) -> None:
    if not text.strip():
        raise errors.ClientError("the statement is empty; expected a SELECT statement", errors.SYNTAX_ERROR)
    if len(text) > QUERY_CHARS_MAX:
        raise errors.ClientError(f"expected at most {QUERY_CHARS_MAX} characters of SQL", errors.TOO_LARGE)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise errors.ClientError("expected a statement in UTF-8 without NUL", errors.SYNTAX_ERROR)
    check_read_only(text)


def check_read_only(text: str) -> None:
    """Raise `ClientError` if the first word of a statement is that of a change."""
    if (match := _FIRST_WORD.match(text)) and match[1].upper() in _CHANGES:
        raise errors.ClientError(READ_ONLY, errors.READONLY)


def _values_of(query: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(_VALUE): text for name, text in query.items() if name.startswith(_VALUE)}


def _settings_of(query: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the settings of the engine. Raises `ClientError` for other parameters."""
    for name, value in query.items():
        if name in LIMITS:
            yield name, _lowered(name, value)
        elif name in _CHOSEN:
            yield name, _chosen(name, value, errors.BAD_ARGUMENTS)
        elif name in _FIXED:
            _chosen(name, value, _FIXED[name])
        elif name not in _IGNORED | _READ_ELSEWHERE and not name.startswith(_VALUE):
            raise _unknown_setting(name)


def _chosen(name: str, value: str, code: errors.Code) -> str:
    if not _VALUES_OF[name].fullmatch(value):
        hint = " (HTTP compresses instead: Accept-Encoding)" if code == errors.NOT_IMPLEMENTED else ""
        expected = _VALUES_OF[name].pattern.replace("|", " or ")
        raise errors.ClientError(f"the value of {name} is not supported; expected {expected}{hint}", code)
    return value


def _unknown_setting(name: str) -> errors.ClientError:
    """Return the error for an unknown parameter. It has the name only if that is a plain word."""
    shown = f" '{name}'" if _PLAIN_NAME.fullmatch(name) else ""
    known = ", ".join((*LIMITS, *_CHOSEN))
    return errors.ClientError(
        f"unknown parameter{shown} in the URL; known settings are: {known}", errors.UNKNOWN_SETTING
    )


def _lowered(name: str, value: str) -> str:
    """Return the limit of the client, or the limit of the receiver if that is lower. Zero means no limit."""
    if not _NUMBER.fullmatch(value):
        raise errors.ClientError(
            f"the value of {name} is not supported; expected a number", errors.BAD_ARGUMENTS
        )
    limit = min(float(value) or LIMITS[name], LIMITS[name])
    # The engine takes whole numbers only, except for seconds.
    return str(limit if name == "max_execution_time" else max(1, int(limit)))
