"""Formatter of sizes for messages: bytes in a suitable unit."""

from __future__ import annotations

PLAIN_BYTES_MAX = 10_000
"""Size up to which the exact number of bytes is written."""
UNIT_STEP = 1024
UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size_bytes: int) -> str:
    """Return a size for a message: `1 byte`, `8190 bytes`, `12.5 KiB`, `4 GiB`; four significant digits."""
    if abs(size_bytes) < PLAIN_BYTES_MAX:
        return f"{size_bytes} byte{'' if size_bytes == 1 else 's'}"
    size, unit = size_bytes / UNIT_STEP, UNITS[0]
    for larger in UNITS[1:]:
        if abs(size) < UNIT_STEP:
            break
        size, unit = size / UNIT_STEP, larger
    # `.4g` alone would write a number of five digits with an exponent.
    digits = f"{size:.0f}" if abs(size) >= UNIT_STEP else f"{size:.4g}"
    return f"{digits} {unit}"
