"""Lists of docs/protocol.md (`make docs`): templates of all messages that clients receive, from the source.

Python: the texts of the errors that are answered, and of the calls that write an answer. Rust core: every
sentence in the files that decode deliveries. In a template, `…` stands for a value. An origin names where a
template is from: `core/FILE`, `MODULE CALL` or `MODULE NAME`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
VALUE = "…"
KEPT_ERRORS = {"OperatorError", "StaleSegment", "StoreTrouble", "Unfinished"}
"""Errors whose text stays in the receiver: of `StoreTrouble` the API sends the label."""
INDEX_OF_TEXT = {
    "HttpRefused": 1,
    "http_refusal": 1,
    "error_response": 1,
    "raw_error": 1,
    "_error": 1,
    "ApiProblem": 1,
    "expect": 1,
    "invalid": 0,
}
"""Calls that make an answer, by the index of their text; for an error it is 0."""
JOURNAL_FULL = ("journal/ceiling.py:reason", "journal/ceiling.py:measure", "intake/committer.py:STOPPING")
SOURCES_OF = {
    "*_parse_error_answer(exc)": ("http/protocol.py:_parse_error_answer",),
    "*logged_refusal(exc, self._refused_line, self._connection.address)": (
        "intake/connections/parse_errors.py:refusal_of",
        "intake/connections/parse_errors.py:_too_large",
    ),
    "full_reason": JOURNAL_FULL,
    "item.reason": JOURNAL_FULL,
    "problem": ("console/queries/filters/traceql.py:_mismatch",),
    "outcome.message": (),  # a message of the core
    "reason": (*JOURNAL_FULL, "http/origin.py:WRONG_HOST", "http/origin.py:WRONG_ORIGIN"),
    "_routing_problem(request, refusal)": ("console/api/problems.py:_routing_problem",),
    "self._error": ("journal/appender.py:_failed",),
    "self._hint(path)": ("intake/routes.py:_hint", "intake/routes.py:_default_or_any"),
    "str(exceeded)": (),  # an error of `limit_exceeded`
    "str(error)": (),  # an error that is found where it is raised
    "self.problem": (),  # as above
    "str(named)": (),  # as above
    "str(reason)": (),  # as above
    "text": ("ledger/query.py:_instant",),
}
"""Expression other than a literal or constant → `module:name` of functions and constants with its texts."""
OTHER_SOURCES = (
    "errors.py:_outcome",
    "engine/advice.py:advice_on",
    "engine/driver_errors.py:_tls_advice",
    "engine/driver_errors.py:_CAUSES",
    "intake/answers.py:_PROBE_TEXT",
    "intake/committer.py:STORE_GONE",
    "intake/pending.py:_receipt",
    "intake/pending.py:DEAD",
)
"""Texts that reach a client in another way than by an error or a call of `INDEX_OF_TEXT`."""

SECTIONS = {
    "rejected-spans": r"core/visit: (element of spans|span id is|span without|trace id is)",
    "warnings": r"core/visit:",
    "dead-spans": r"intake/pending\.py DEAD:",
    "endpoint-test": r"intake/answers\.py",
    "protobuf": r"core/(otlp|wire)/",
    "json": r"core/json/.*; expected",
    "json-parts": r"core/json/",
    "compressed-streams": r"core/unpack/\w+: (framed )?\w+ (block|frame|header|member|stream)$",
    "body-limits": r"core/(rows|unpack/output)|intake/.* BodyTooLarge:",
    "compressed": r"core/unpack/",
    "refused-bodies": r"core/outcome|journal/quarantine\.py MalformedBody:",
    "webhooks": r"platform/webhooks/.* MalformedBody:",
    "http": r"intake/connections/parse_errors\.py|.* HttpRefused|http/protocol\.py (?!error_response 500)",
    "credentials": r"intake/credentials\.py",
    "paths": r"intake/.* (MethodNotAllowed|NoSuchPath|_hint|_default_or_any):",
    "media-types": r"intake/media\.py",
    "unavailable": r"(intake|journal|platform/webhooks)/",
    "access": r"console/.* (Forbidden|NotAllowed|Unauthorized):|http/(origin|media_types)\.py",
    "not-found": r".* (_routing_problem|ApiProblem refusal\.status|DeadLetterConflict|NotConfigured):"
    r"|.* NoSuch(DeadLetter|Project|Trace|View):",
    "filters": r"console/queries/filters/",
    "parameters": r"(ledger/|store_process/|time_range|console/(api/(?!sql)|queries/(?!raw_sql)|ui/))"
    r".* MalformedBody:|.* NoSuchDeployment:|ledger/query\.py",
    "query-limits": r".* LimitExceeded:",
    "tools": r"console/tools/(common|jaeger/|prometheus|tempo/)",
    "mcp": r"console/tools/mcp/",
    "clickhouse": r"console/(tools/clickhouse_http/|queries/raw_sql/native)",
    "store": r"(engine/|errors\.py|console/api/problems\.py ApiProblem status)",
    "sql": r"console/(api/sql\.py|queries/raw_sql/)",
    "installation": r"console/api/sessions\.py InstallationRefused:"
    r"|platform/(installations/|pages/install_routes)",
    "explanation": r"platform/explain/(conversation|toolbox)",
    "busy": r".* CallerBusy:",
    "api-unavailable": r".* (ClientTooSlow|DiskTrouble|QueueFull|error_response 500|raw_error \S+):",
}
"""List of docs/protocol.md → pattern of `ORIGIN: TEMPLATE`. The first list that matches has the message."""
LIST = re.compile(r"(<!-- messages: (\S+) -->\n)(?:\n(?:- .*\n)+)?")
"""A list of the page, below the comment that names it."""

CORE_WITHOUT_MESSAGES = re.compile(
    r"base64|columns/.*|compress|days|frame|group/tests|merge|native|patterns|policy|put|python|python/.*|refusal|resolve|rewrite|"
    r"rows/owner|sample|sample/.*|scan|scan/.*|schema|tally|otlp/value"
)
"""Files whose sentences are for operators or developers. `tally` joins the sentences of `visit`."""
RUST_TOKEN = re.compile(
    r'//[^\n]*|(reason = |expect\(\s*)?b?"((?:[^"\\]|\\.)*)"|\'(?:[^\'\\]|\\.)\'', re.DOTALL
)


class UnknownSourceError(Exception):
    """A text that is not a literal and has no entry in `SOURCES_OF`, or a message that no list contains."""


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of each module of the receiver, by path."""
    root = ROOT / "receiver"
    return {str(path.relative_to(root)): ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}


def protocol_page() -> str:
    """Return the text of docs/protocol.md: the page as it is, with new lists of messages."""
    lists = message_lists()

    def listed(comment: re.Match[str]) -> str:
        items = [f"- {literal(text)}\n" for text in sorted(lists.pop(comment[2]), key=str.lower)]
        return f"{comment[1]}\n{''.join(items)}"

    page = LIST.sub(listed, (ROOT / "docs/protocol.md").read_text())
    if lists:
        raise UnknownSourceError(f"docs/protocol.md has no comment for the lists {', '.join(lists)}")
    return page


def literal(text: str) -> str:
    """Return a text as code of Markdown."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def message_lists() -> dict[str, list[str]]:
    """Return the messages by list. Raises `UnknownSourceError` if a message or a list would be lost."""
    lists: dict[str, list[str]] = {name: [] for name in SECTIONS}
    for text, origins in messages().items():
        keys = [f"{origin}: {text}" for origin in origins]
        name = next(
            (name for name, pattern in SECTIONS.items() if any(re.match(pattern, key) for key in keys)), None
        )
        if name is None:
            raise UnknownSourceError(f"no pattern of SECTIONS matches {keys[0]}")
        lists[name].append(text)
    if empty := [name for name, texts in lists.items() if not texts]:
        raise UnknownSourceError(f"no message is in the lists {', '.join(empty)}")
    return lists


def messages() -> dict[str, set[str]]:
    """Return all templates with their origins."""
    origins = defaultdict(set)
    for source in OTHER_SOURCES:
        for text in texts_at(source):
            origins[text].add(source.replace(":", " "))
    for module, tree in trees().items():
        for call, expression in sent_texts(tree):
            for text, origin in templates_of(expression, module, call):
                origins[text].add(origin)
    for file, text in core_messages():
        origins[text].add(f"core/{file}")
    return {text: places for text, places in origins.items() if re.search("[a-z]", text)}


@cache
def answered_errors() -> set[str]:
    """Return the names of the errors whose text a client receives."""
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    known = {"ReceiverError"}
    while more := {
        node.name
        for node in classes
        if node.name not in known | KEPT_ERRORS
        and any(ast.unparse(base).rpartition(".")[2] in known for base in node.bases)
    }:
        known |= more
    return known


def sent_texts(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield each call of this module that sends a text to a client (its name and status), and the text."""
    index_of = {**dict.fromkeys(answered_errors(), 0), **INDEX_OF_TEXT}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if name in index_of and node.args:
            index = min(index_of[name], len(node.args) - 1)
            yield " ".join([name, *map(ast.unparse, node.args[:index])]), node.args[index]


def templates_of(text: ast.expr, module: str, call: str) -> Iterator[tuple[str, str]]:
    """Yield the templates of a text, with their origins. Raises `UnknownSourceError`."""
    if isinstance(text, ast.Call) and ast.unparse(text.func).endswith(".rstrip"):
        text = next(node for node in ast.walk(text) if isinstance(node, ast.JoinedStr))
    expression = ast.unparse(text)
    constant = expression.rpartition(".")[2]
    if isinstance(text, ast.Constant | ast.JoinedStr):
        yield template(text), f"{module} {call}"
    elif constant.isupper():
        modules = [module] if constant_of(module, constant) else trees()
        yield from ((each, f"{module} {call}") for other in modules for each in constant_of(other, constant))
    elif expression in SOURCES_OF:
        for source in SOURCES_OF[expression]:
            yield from ((each, source.replace(":", " ")) for each in texts_at(source))
    else:
        raise UnknownSourceError(f"receiver/{module}: {expression}")


def constant_of(module: str, name: str) -> set[str]:
    """Return the texts of a constant of this module; none if it has no such constant."""
    assigned = [node for node in trees()[module].body if isinstance(node, ast.Assign | ast.AnnAssign)]
    return {
        text
        for node in assigned
        if name in ast.unparse(node).partition("=")[0].partition(":")[0].split() and node.value is not None
        for text in literals(node.value)
    }


def texts_at(source: str) -> set[str]:
    """Return the sentences of a function or constant, given as `module:name`."""
    module, name = source.split(":")
    functions = [
        node for node in ast.walk(trees()[module]) if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    texts = {text for function in functions for node in function.body for text in literals(node)}
    texts = {text for text in texts if " " in text} | constant_of(module, name)
    if not texts:
        raise UnknownSourceError(f"receiver/{source} is gone or has no text")
    return texts


def literals(node: ast.AST) -> Iterator[str]:
    """Yield the outermost string literals of a statement, without docstrings and compared texts."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    ):
        yield template(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from literals(child)


def template(text: ast.expr) -> str:
    """Return a literal with its values replaced."""
    if isinstance(text, ast.JoinedStr):
        return "".join(map(raw_template, text.values)).replace(VALUE * 2, VALUE).strip()
    return raw_template(text).strip()


def raw_template(part: ast.expr) -> str:
    """Return a part of a literal; a value becomes `…`."""
    if isinstance(part, ast.Constant):
        return part.value.decode() if isinstance(part.value, bytes) else str(part.value)
    return VALUE


def core_messages() -> Iterator[tuple[str, str]]:
    """Yield the sentences of the core's files that are not in `CORE_WITHOUT_MESSAGES`, with their file."""
    root = ROOT / "transcode/src"
    for path in sorted(root.rglob("*.rs")):
        file = str(path.relative_to(root).with_suffix(""))
        if not CORE_WITHOUT_MESSAGES.fullmatch(file):
            sentences = rust_sentences(path.read_text().partition("#[cfg(test)]")[0])
            yield from ((file, sentence) for sentence in sentences)


def rust_sentences(source: str) -> Iterator[str]:
    """Yield the string literals of Rust code that have a space, with their values replaced."""
    for match in RUST_TOKEN.finditer(source):
        is_reason, text = match.groups()
        if text and not is_reason and " " in text.strip():
            joined = re.sub(r"\\\n\s*", "", text).replace('\\"', '"')
            yield re.sub(r"\{\w*(?::[^}]*)?\}", VALUE, joined).strip()
