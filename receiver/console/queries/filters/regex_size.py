"""Size of a regular expression once the engine has written out its counted repetitions.

`((a{9}){9}){9}` is compiled as 729 characters. The engine's time grows with this size and with the text that
it searches, so that a short filter could occupy it for minutes.
"""

from __future__ import annotations

import re
from typing import Final

REGEX_SIZE_MAX: Final = 1_000
"""Maximum size of all regular expressions of a filter together."""
_UNICODE_CLASS_SIZE: Final = 20
"""Size of a class such as `\\pL`, which consists of many ranges of characters."""
_PART = re.compile(
    r"(?P<class>\\[pP](?:\{[^}]*\}|.)?)|\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]"
    r"|(?P<open>\()|(?P<close>\))|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}|.",
    re.DOTALL,
)


def regex_size(regex: str) -> int:
    """Return an estimate of the size, also for text that is no valid expression."""
    # Of each open group: the size of its parts, and the size of the last part, which a repetition multiplies.
    sizes, last = [0], 0
    for part in _PART.finditer(regex):
        if part["open"]:
            sizes.append(0)
        elif part["close"] and len(sizes) > 1:
            last = max(1, sizes.pop())
            sizes[-1] += last
        elif part["least"]:
            repeated = last * (max(int(part["least"]), int(part["most"] or 0), 1) - 1)
            sizes[-1], last = sizes[-1] + repeated, last + repeated
        else:
            last = _UNICODE_CLASS_SIZE if part["class"] or "\\p" in part[0] else 1
            sizes[-1] += last
    return sum(sizes)
