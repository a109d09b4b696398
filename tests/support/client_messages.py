"""Templates of all messages that the drain port and the API send to clients, read from the source.

Python: the texts of the errors that are answered, and of the calls that write an answer. Rust core: every
sentence in the files that decode deliveries. In a template, `…` stands for a value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
    "intake/store_waiters.py:_receipt",
    "intake/store_waiters.py:DEAD",
)
"""Texts that reach a client in another way than by an error or a call of `INDEX_OF_TEXT`."""

CORE_WITHOUT_MESSAGES = re.compile(
    r"base64|columns/.*|compress|days|frame|group/tests|merge|native|patterns|policy|put|python|python/.*|refusal|resolve|rewrite|"
    r"rows/owner|sample|sample/.*|scan|scan/.*|schema|tally|otlp/value"
)
"""Files whose sentences are for operators or developers. `tally` joins the sentences of `visit`."""
RUST_TOKEN = re.compile(
    r'//[^\n]*|(reason = |expect\(\s*)?b?"((?:[^"\\]|\\.)*)"|\'(?:[^\'\\]|\\.)\'', re.DOTALL
)


class UnknownSourceError(Exception):
    """A text that is not a literal and has no entry in `SOURCES_OF`."""


@cache
def trees() -> dict[str, ast.Module]:
    root = ROOT / "receiver"
    # The emulator answers for the platform, not for the receiver.
    paths = [path for path in sorted(root.rglob("*.py")) if path.parent != root / "emulator"]
    return {str(path.relative_to(root)): ast.parse(path.read_text()) for path in paths}


@cache
def messages() -> set[str]:
    """Return all templates."""
    found = {text for source in OTHER_SOURCES for text in texts_at(source)}
    for name, tree in trees().items():
        for text in sent_texts(tree):
            found.update(templates_of(text, name))
    return {text for text in found if re.search("[a-z]", text)} | core_messages()


@cache
def answered_errors() -> set[str]:
    """Return the names of the errors whose text a client receives."""
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    known = {"ReceiverError"}
    while more := {
        node.name
        for node in classes
        if node.name not in known | KEPT_ERRORS and any(ast.unparse(base) in known for base in node.bases)
    }:
        known |= more
    return known


def sent_texts(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expression of each text that this module sends to a client."""
    index_of = {**dict.fromkeys(answered_errors(), 0), **INDEX_OF_TEXT}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if name in index_of and node.args:
            yield node.args[min(index_of[name], len(node.args) - 1)]


def templates_of(text: ast.expr, module: str) -> set[str]:
    """Return the templates of a text. Raises `UnknownSourceError`."""
    if isinstance(text, ast.Call) and ast.unparse(text.func).endswith(".rstrip"):
        text = next(node for node in ast.walk(text) if isinstance(node, ast.JoinedStr))
    if isinstance(text, ast.Constant | ast.JoinedStr):
        return {template(text)}
    expression = ast.unparse(text)
    constant = expression.rpartition(".")[2]
    if constant.isupper():
        own = constant_of(module, constant)
        return own or {text for other in trees() for text in constant_of(other, constant)}
    if expression not in SOURCES_OF:
        raise UnknownSourceError(f"receiver/{module}: {expression}")
    return {text for source in SOURCES_OF[expression] for text in texts_at(source)}


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
    if isinstance(part, ast.Constant):
        return part.value.decode() if isinstance(part.value, bytes) else str(part.value)
    return VALUE


def core_messages() -> set[str]:
    """Return the sentences of the core's files that are not in `CORE_WITHOUT_MESSAGES`."""
    root = ROOT / "transcode/src"
    return {
        text
        for path in sorted(root.rglob("*.rs"))
        if not CORE_WITHOUT_MESSAGES.fullmatch(str(path.relative_to(root).with_suffix("")))
        for text in rust_sentences(path.read_text().partition("#[cfg(test)]")[0])
    }


def rust_sentences(source: str) -> Iterator[str]:
    for match in RUST_TOKEN.finditer(source):
        is_reason, text = match.groups()
        if text and not is_reason and " " in text.strip():
            joined = re.sub(r"\\\n\s*", "", text).replace('\\"', '"')
            yield re.sub(r"\{\w*(?::[^}]*)?\}", VALUE, joined).strip()
