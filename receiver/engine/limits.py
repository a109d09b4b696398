"""Limits and settings of every statement that reads the tables for an operator."""

from __future__ import annotations

SECONDS_MAX = 60
"""Time limit in the engine."""
MEMORY_BYTES_MAX = 2 << 30
"""Memory limit in the engine."""
ROWS_READ_MAX = 2_000_000_000
"""Maximum number of rows that a statement reads."""
BYTES_READ_MAX = 1 << 40
"""Maximum number of uncompressed bytes that a statement reads."""

SETTINGS = (
    "SETTINGS session_timezone = 'UTC', output_format_json_quote_64bit_integers = 0, "
    "output_format_json_escape_forward_slashes = 0, "
    f"max_execution_time = {SECONDS_MAX}, timeout_before_checking_execution_speed = 0, "
    f"max_memory_usage = {MEMORY_BYTES_MAX}, max_rows_to_read = {ROWS_READ_MAX}, "
    f"max_bytes_to_read = {BYTES_READ_MAX}"
)
"""Times are UTC. 64-bit integers are JSON numbers; readers that parse them as doubles lose precision."""

SHORT_SETTINGS = f"{SETTINGS}, optimize_use_implicit_projections = 0"
"""For statements with aggregates that read little: the engine does not plan an answer from the parts' sizes,
which takes 0.7 ms of CPU."""

BLOCK_BYTES = 16 << 20
AGGREGATION_SETTINGS = f"{SETTINGS}, preferred_block_size_bytes = {BLOCK_BYTES}"
"""Settings of statements that reduce many spans with maps or regular expressions to few lines.

The engine's default of 1 MB makes blocks of few spans, and compiles each regular expression for each block.
"""
