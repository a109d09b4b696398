"""What each ClickHouse error means for the segment that met it: one table.

After any error the rows are counted before anything else happens; the class says how long to wait, whether
to call a human, and whether the data itself may be at fault.
"""

from __future__ import annotations

from enum import StrEnum

from receiver.errors import StoreTrouble


class Fault(StrEnum):
    """What to do about an error."""

    RETRY = "retry"
    """It passes: the same INSERT again, soon."""
    SLOWER = "retry_slower"
    """The store has too much to do or too little to do it with: the same INSERT again, later."""
    HOLD = "hold"
    """Schema, rights or deployment: a human is needed, the segment waits."""
    POISON = "poison"
    """The data may be at fault; set it aside if a row of our own is accepted."""
    BY_DAY = "by_day"
    """Too many partitions for one INSERT: insert fewer days at once."""
    UNKNOWN = "unknown_outcome"
    """It may have been applied, or still be."""


_CODES: dict[Fault, tuple[int, ...]] = {
    # 209 SOCKET_TIMEOUT, 210 NETWORK_ERROR, 225 NO_ZOOKEEPER, 236 ABORTED, 279 ALL_CONNECTION_TRIES_FAILED,
    # 285 TOO_FEW_LIVE_REPLICAS, 394 QUERY_WAS_CANCELLED, 439 CANNOT_SCHEDULE_TASK, 999 KEEPER_EXCEPTION,
    # 216 QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING: our own, it is waited for before the next try
    Fault.RETRY: (209, 210, 216, 225, 236, 279, 285, 394, 439, 999),
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
"""Every code that is known. What is not here holds the segment, calls a human, and is poison in the end."""

PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Of a proxy that cannot reach the server just now, or has too much to do."""

SLOW = frozenset({Fault.SLOWER, Fault.HOLD, Fault.POISON})
"""What is not tried again at once."""

TOO_MANY_PARTS = 252
TOO_LARGE = frozenset({159, 241})
"""Time and memory spent: the engine is busy, or this segment is more than it can take."""
OF_ONE_SEGMENT = TOO_LARGE | {TOO_MANY_PARTS}
"""What may concern a single segment though the store has nothing against others: its size, or its days."""


def fault_of(trouble: StoreTrouble) -> Fault:
    """Classify. Nothing was told at all: the answer was lost, and with it the outcome."""
    if trouble.code is None:
        return _fault_without_code(trouble)
    if trouble.code == TOO_MANY_PARTS and "too many partitions" in str(trouble).lower():
        return Fault.BY_DAY
    return FAULT_OF.get(trouble.code, Fault.HOLD)


def _fault_without_code(trouble: StoreTrouble) -> Fault:
    """Something before the server answered, or its certificate is none we trust."""
    if trouble.status is not None:
        return Fault.SLOWER if trouble.status in PASSING_STATUSES else Fault.HOLD
    return Fault.HOLD if trouble.name else Fault.UNKNOWN
