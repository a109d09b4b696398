"""Content types of the API and the pages, and their check."""

from __future__ import annotations

from typing import Final

from receiver.errors import UnsupportedMedia

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
FORM: Final = "application/x-www-form-urlencoded"


def require_content_type(found: str, expected: str) -> None:
    """Raise `UnsupportedMedia` unless a request has the expected content type."""
    if found != expected:
        raise UnsupportedMedia(f"content type is not supported; expected '{expected}'")


def require_json(found: str) -> None:
    """Raise `UnsupportedMedia` unless a request declares JSON, even if its body is empty."""
    # A form or a plain text of another site reaches us without a CORS preflight.
    if found != JSON:
        raise UnsupportedMedia(f"content type is not supported; expected '{JSON}', with any body")
