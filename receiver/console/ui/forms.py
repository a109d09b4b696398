"""Forms of the pages: their fields, within limits.

Protection against requests of other sites: the check of Host and Origin covers every request, and browsers
send no session cookie across sites (`SameSite=Strict`).
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from aiohttp import web

from receiver.errors import MalformedBody
from receiver.http.media_types import FORM, require_content_type

FORM_BYTES_MAX = 256 * 1024
"""Maximum size of a form: a token of 64 KiB, percent-encoded, or the longest SQL statement."""
FORM_FIELDS_MAX = 8
FORM_TIMEOUT_S = 10.0
"""Time for the client to send a form."""


async def form_of(request: web.Request) -> dict[str, str]:
    """Return the fields of a form. Raises if it is too large, too slow or no form."""
    require_content_type(request.content_type, FORM)
    if request.content_length is None:
        raise web.HTTPLengthRequired
    if request.content_length > FORM_BYTES_MAX:
        raise web.HTTPRequestEntityTooLarge(max_size=FORM_BYTES_MAX, actual_size=request.content_length)
    try:
        # A connection whose request is not answered yet is never evicted.
        async with asyncio.timeout(FORM_TIMEOUT_S):
            body = await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout from error
    try:
        fields = parse_qs(
            body.decode(errors="replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError as error:
        raise MalformedBody(f"the form has too many fields; expected at most {FORM_FIELDS_MAX}") from error
    return {name: values[0] for name, values in fields.items()}
