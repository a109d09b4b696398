"""Random statements that read a file somewhere inside, each with a harmless twin of the same shape."""

from __future__ import annotations

import random
from collections.abc import Callable

READ = "file('/etc/passwd')"
HARMLESS = "lower('A')"

_EXPRESSIONS: tuple[str, ...] = (
    "({})",
    "upper({})",
    "concat({}, '')",
    "[{}][1]",
    "({}, 1).1",
    "if(1, {}, '')",
    "CASE WHEN 1 THEN {} ELSE '' END",
    "arrayMap(x -> concat(x, {}), [''])[1]",
    "map('k', {})['k']",
    "(SELECT {})",
    "(WITH c AS (SELECT {} AS y) SELECT y FROM c)",
    "CAST({} AS String)",
    "{}::String",
    "arrayElement(arrayFilter(z -> z = {0}, [{0}]), 1)",
    "(SELECT any(y) FROM (SELECT {} AS y) AS s CROSS JOIN numbers(2) AS m)",
    "(SELECT max({}) OVER ())",
    "coalesce(NULL, {})",
    "arrayJoin([{}])",
)
_STATEMENTS: tuple[str, ...] = (
    "SELECT lower({}) AS x",
    "WITH c AS (SELECT {} AS y) SELECT lower(y) AS x FROM c",
    "SELECT 'a' AS x WHERE length({}) > 0",
    "SELECT 'a' AS x FROM numbers(1) ORDER BY {}",
    "SELECT 'a' AS x FROM numbers(1) GROUP BY {}",
    "SELECT x FROM (SELECT lower({}) AS x)",
    "SELECT * APPLY(y -> lower({})) FROM (SELECT 1 AS x)",
    "SELECT * REPLACE(lower({}) AS x) FROM (SELECT '' AS x)",
    "SELECT 'a' AS x FROM numbers(1) AS n ARRAY JOIN [{}] AS e",
    "SELECT 'a' AS x FROM numbers(1) AS n JOIN numbers(1) AS m ON n.number = m.number WHERE {} != ''",
    "SELECT 'a' AS x UNION DISTINCT SELECT lower({})",
    "SELECT 'a' AS x WHERE {0} IN ({0})",
)
_SPACES = (" ", "\n", "\t", " /* c */ ", " -- c\n", " /* ' */ ", " # c\n")


def composed_attacks(rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Return pairs: a statement that reads a file, and the same statement with a harmless function."""
    return [_pair(rng) for _ in range(count)]


def _pair(rng: random.Random) -> tuple[str, str]:
    shape = rng.choice(_STATEMENTS)
    for _ in range(rng.randrange(4)):
        shape = shape.replace("{0}", "{}")
        expression = rng.choice(_EXPRESSIONS)
        shape = shape.format(*[expression.replace("{0}", "{}")] * shape.count("{}"))
    shape = shape.replace("{0}", "{}").replace(" ", rng.choice(_SPACES), rng.randrange(3))
    places = shape.count("{}")
    return shape.format(*[_spelled(rng, READ)] * places), shape.format(*[HARMLESS] * places)


def _spelled(rng: random.Random, call: str) -> str:
    """Return the call in another spelling that the engine reads alike."""
    name, _, argument = call.partition("(")
    spellings: tuple[Callable[[], str], ...] = (
        lambda: f"{name}({argument}",
        lambda: f"`{name}`({argument}",
        lambda: f'"{name}"({argument}',
        lambda: f"{name}{rng.choice(_SPACES)}({argument}",
        lambda: f"`\\x{ord(name[0]):02x}{name[1:]}`({argument}",
        lambda: f"arrayMap({name}, ['/etc/passwd'])[1]",
        lambda: f"arrayMap(p -> {name}(p), ['/etc/passwd'])[1]",
    )
    return rng.choice(spellings)()
