"""Classification of ClickHouse errors: one table that decides how the writer handles a segment.

After any error the writer first counts the segment's rows. The class then decides how long to wait, whether
to alert an operator, and whether the data itself may be at fault.
"""

from __future__ import annotations

from enum import StrEnum

from receiver.errors import StoreTrouble

NO_TABLE_CODES = frozenset({60, 81})
"""UNKNOWN_TABLE and UNKNOWN_DATABASE: the schema has not been applied yet, or the tables were dropped."""


class Fault(StrEnum):
    """Class of an error, which decides the writer's reaction."""

    RETRY = "retry"
    """Temporary: send the same INSERT again soon."""
    SLOWER = "retry_slower"
    """The store is overloaded or short of resources: send the same INSERT again later."""
    HOLD = "hold"
    """Wrong schema, rights or deployment: the segment waits for an operator."""
    POISON = "poison"
    """The data may be at fault; the segment becomes a dead letter if the store accepts the probe row."""
    BY_DAY = "by_day"
    """Too many partitions for one INSERT: insert fewer days at once."""
    UNKNOWN = "unknown_outcome"
    """The INSERT may have been applied, or may still be running."""


_CODES: dict[Fault, tuple[int, ...]] = {
    # 198 DNS_ERROR, 286 UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE,
    # 209 SOCKET_TIMEOUT, 210 NETWORK_ERROR, 225 NO_ZOOKEEPER, 236 ABORTED, 279 ALL_CONNECTION_TRIES_FAILED,
    # 285 TOO_FEW_LIVE_REPLICAS, 394 QUERY_WAS_CANCELLED, 439 CANNOT_SCHEDULE_TASK, 999 KEEPER_EXCEPTION,
    # 216 QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING: an earlier try, which the writer waits for before the next
    Fault.RETRY: (198, 209, 210, 216, 225, 236, 279, 285, 286, 394, 439, 999),
    # 159 TIMEOUT_EXCEEDED, 201 QUOTA_EXCEEDED, 202 TOO_MANY_SIMULTANEOUS_QUERIES, 203 NO_FREE_CONNECTION,
    # 241 MEMORY_LIMIT_EXCEEDED, 242 TABLE_IS_READ_ONLY, 243 NOT_ENOUGH_SPACE, 252 TOO_MANY_PARTS,
    # 692 TOO_MANY_MUTATIONS, 745 SERVER_OVERLOADED
    Fault.SLOWER: (159, 201, 202, 203, 241, 242, 243, 252, 692, 745),
    # 16 NO_SUCH_COLUMN_IN_TABLE, 60 UNKNOWN_TABLE, 73 UNKNOWN_FORMAT, 81 UNKNOWN_DATABASE,
    # 115 UNKNOWN_SETTING, 117 INCORRECT_DATA (a column the table does not have), 164 READONLY (the user is),
    # 192 UNKNOWN_USER, 193 WRONG_PASSWORD, 194 REQUIRED_PASSWORD, 497 ACCESS_DENIED,
    # 516 AUTHENTICATION_FAILED
    Fault.HOLD: (16, 60, 73, 81, 115, 117, 164, 192, 193, 194, 497, 516),
    # 6 CANNOT_PARSE_TEXT, 7 INCORRECT_NUMBER_OF_COLUMNS, 9 SIZES_OF_COLUMNS_DOESNT_MATCH,
    # 20 NUMBER_OF_COLUMNS_DOESNT_MATCH, 27 CANNOT_PARSE_INPUT_ASSERTION_FAILED, 32 ATTEMPT_TO_READ_AFTER_EOF,
    # 33 CANNOT_READ_ALL_DATA, 38 CANNOT_PARSE_DATE, 41 CANNOT_PARSE_DATETIME, 50 UNKNOWN_TYPE,
    # 53 TYPE_MISMATCH, 62 SYNTAX_ERROR, 69 ARGUMENT_OUT_OF_BOUND, 70 CANNOT_CONVERT_TYPE,
    # 72 CANNOT_PARSE_NUMBER, 128 TOO_LARGE_ARRAY_SIZE, 131 TOO_LARGE_STRING_SIZE,
    # 190 SIZES_OF_ARRAYS_DONT_MATCH, 349 CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN, 354 ZLIB_INFLATE_FAILED,
    # 469 VIOLATED_CONSTRAINT, 618 LZ4_DECODER_FAILED
    Fault.POISON: (
        *(6, 7, 9, 20, 27, 32, 33, 38, 41, 50, 53, 62, 69, 70),
        *(72, 128, 131, 190, 349, 354, 469, 618),
    ),
    # 75 CANNOT_WRITE_TO_FILE_DESCRIPTOR, 204 CANNOT_FSYNC, 319 UNKNOWN_STATUS_OF_INSERT, 1001 STD_EXCEPTION
    Fault.UNKNOWN: (75, 204, 319, 1001),
}

FAULT_OF: dict[int, Fault] = {code: fault for fault, codes in _CODES.items() for code in codes}
"""Class by error code. After an unknown code the segment waits, and becomes a dead letter if it repeats."""

TEMPORARY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of a proxy that is overloaded or temporarily cannot reach the server."""

SLOW = frozenset({Fault.SLOWER, Fault.HOLD, Fault.POISON})
"""Classes that are not retried at once."""

TOO_MANY_PARTS = 252
TOO_LARGE = frozenset({159, 241})
"""Time or memory limit exceeded: the engine is busy, or this segment is too large for it."""
OF_ONE_SEGMENT = TOO_LARGE | {TOO_MANY_PARTS}
"""Codes that may affect one segment, because of its size or its days, while other segments are accepted."""


def fault_of(trouble: StoreTrouble) -> Fault:
    """Classify an error of the store. Without code, status and name, the answer was lost."""
    if trouble.code is None:
        return _fault_without_code(trouble)
    # One code for two errors: the table has too many parts, or one INSERT has too many days.
    if trouble.code == TOO_MANY_PARTS and "too many partitions" in str(trouble).lower():
        return Fault.BY_DAY
    # An unknown code, as of a newer server: a retry at once would probably fail again.
    return FAULT_OF.get(trouble.code, Fault.HOLD)


def _fault_without_code(trouble: StoreTrouble) -> Fault:
    """Classify the answer of a proxy, an untrusted certificate, or a missing answer."""
    if trouble.status is not None:
        return Fault.SLOWER if trouble.status in TEMPORARY_STATUSES else Fault.HOLD
    # A name without a code is our own finding, like an altered table or an untrusted certificate.
    return Fault.HOLD if trouble.name else Fault.UNKNOWN
