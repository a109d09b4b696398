"""Templates of error messages, in Python and in the engines."""

from __future__ import annotations

import random

from receiver.console.queries.message_template import CHARACTERS_MAX, TEMPLATE_PARAMETERS, template_sql
from receiver.engine.sql_text import SETTINGS, Sql, compose
from receiver.engine.store import Store
from tests.support.cases import each_case
from tests.support.message_templates import template_of

TEMPLATES = {
    "user 17 not found": "user <number> not found",
    "timed out after 5000ms": "timed out after <number>ms",
    "connect ECONNREFUSED 10.0.0.7:5432": "connect ECONNREFUSED <number>",
    "ratio 0.25, code -3, 50%": "ratio <number>, code -<number>, <number>%",
    "at 2026-01-31T10:20:30.5Z, 2026-01-31 10:20": "at <time>, <time>",
    'duplicate key "users_email_key"': "duplicate key <text>",
    "can't read property 'id' of 'x y'": "can't read property <text> of <text>",
    "unknown column `a.b`": "unknown column <text>",
    "open /var/lib/x-1/data.db: no such file": "open <path> no such file",
    "'/etc/passwd' is no directory, see /etc": "<text> is no directory, see <path>",
    "cannot open C:\\Users\\a.txt": "cannot open <path>",
    "read and/or write failed": "read and/or write failed",
    "fetch https://api.example.com/v1/users/7?x=1 failed": "fetch <url> failed",
    "mail to ana.b+c@example.co.uk bounced": "mail to <email> bounced",
    "job 5b8efff7-9803-4103-8269-b633813fc60c died": "job <uuid> died",
    "trace 5b8efff798038103d269b633813fc60c, at 0xDEADbeef": "trace <hex>, at <hex>",
    "no deployment dpl_8fK2aZ90": "no deployment <id>",
    "Commit a1b2c3d4 is gone": "Commit <id> is gone",
    "HTTP2 and s3 and utf8": "HTTP<number> and s<number> and utf<number>",
    "überzählig é7 中文 12": "überzählig é<number> 中文 <number>",
    "": "",
    "no number here": "no number here",
}
PIECES = (
    *TEMPLATES,
    *"'\"`/\\ .,:;=-_()[]<>@09afAFzé中\n\t\r\x0b\x1c\x85\u2028",
    "0x",
    "ab12",
    "://",
    "\\1",
    "\\0",
    "''",
)


@each_case(("message", "template"), TEMPLATES.items())
def test_values_in_a_message_are_replaced(message: str, template: str) -> None:
    assert template_of(message) == template


def test_engine_computes_the_same_templates(store: Store) -> None:
    rng = random.Random(17)
    messages = [
        *TEMPLATES,
        "x" * (CHARACTERS_MAX - 1) + "é 5",
        *("".join(rng.choices(PIECES, k=rng.randrange(1, 12))) for _ in range(3_000)),
    ]

    statement = compose(
        "SELECT {template} FROM (SELECT arrayJoin({messages:Array(String)}) AS message)",
        template=template_sql(Sql("message")),
    )
    found = [
        template
        for place in range(0, len(messages), 100)
        for (template,) in store.rows(
            f"{statement} {SETTINGS}", {**TEMPLATE_PARAMETERS, "messages": messages[place : place + 100]}
        )
    ]

    assert found == [template_of(message) for message in messages]
