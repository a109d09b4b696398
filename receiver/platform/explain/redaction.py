"""Redaction: replaces secrets in texts for a language model, and names the rule that matched.

Rules are forms of tokens and texts, and names of keys whose values are secrets.

The patterns are data, in `secret_rules.toml`. The core searches them in linear time; the expressions of this
module have bounded repeats only.

Invariant: a text is searched as it is and without its encodings: percent, HTML, and escapes of JSON. A text
with a secret is replaced as a whole, so that no part of it is sent.
"""

from __future__ import annotations

import html
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from receiver.settings import Explain
from receiver.transcode import PatternSet

SEARCHED_CHARACTERS_MAX: Final = 8_192
"""Part of a text that is searched: far more than `TEXT_CHARACTERS_MAX`, after which a text is cut."""
_MARK: Final = re.compile(r"\[redacted: ([a-z0-9_-]{1,40})\]")
KEY_RULE: Final = "secret-key"
"""Name of the rule for values of secret keys, also in texts."""
KEY_CHARACTERS_MAX: Final = 256
_RANDOM_CHARACTERS_MIN: Final = 12
_RANDOM_BITS_MIN: Final = 3.0
"""Minimum entropy of a random value, per character. Words have less, or have no digits."""
_DECODINGS_MAX: Final = 3
"""Maximum number of nested encodings that are removed."""
_AFTER_ANOTHER_CHARACTER: Final = "(^|[^A-Za-z0-9])(?-i:{})"
_KEYS: Final = (
    # KEY=VALUE, KEY: VALUE, and members of JSON, YAML and query strings
    re.compile(
        r"""(?<![\w./-])(?:--?)?(?P<key>[A-Za-z_][\w.-]{0,99}+)[\]"'` ]{0,3}(?P<separator>=>|:=|==?|:)"""
        r"""(?P<space> {0,4})(?P<quote>["'`]?)"""
    ),
    # <key>VALUE</key>
    re.compile(r"<(?:[\w-]{1,40}:)?(?P<key>[A-Za-z_][\w.-]{0,63}+)(?:\s[^<>]{0,200})?>\s{0,4}"),
    # <add key="KEY" value="VALUE"/>, {"name": "KEY", "value": "VALUE"}
    re.compile(
        r"""\b(?:key|name)["']?\s?[=:]\s?["'](?P<key>[\w.-]{1,64})["'],?\s{1,4}["']?value["']?\s?[=:]\s?["']""",
        re.IGNORECASE,
    ),
    # --key VALUE
    re.compile(r"""(?<!\S)--?(?P<key>[A-Za-z][\w.-]{1,63}+) {1,4}["']?(?!-)"""),
)
"""Names of keys in texts, up to the beginning of their values."""
_VALUE: Final = re.compile(
    r"""(?:(?:bearer|basic|token|digest|apikey) {1,4})?(?P<value>[^\s"'<>&,;|]{1,256}+)""", re.IGNORECASE
)
_SCHEME: Final = re.compile(
    r"(?<![\w-])(?:bearer|basic|token|digest|negotiate|apikey|hmac|jwt) {1,4}(?P<value>[\w+/=.~-]{8,256})",
    re.IGNORECASE,
)
"""Credentials of HTTP."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLACEHOLDER: Final = re.compile(
    r"[?*.%#_–-]+|[$:]\d+|\$?\$?[{(\[<%].*|\$[A-Za-z_]\w*|[:@][A-Za-z_]\w*|%(?:\(\w+\))?[sdq]|[xX]{3,}|-?\d{1,3}|"
    # calls, and members of objects: `req.headers.authorization`
    r"(?:self|this|req|request|res|response|process|os|env|ctx|context|settings|config|options|opts|args|params|"
    r"props|state|user|data|json|row|record|event|session|new|old|excluded)[.?\[][A-Za-z_.?()\[\]]*|"
    r"[A-Za-z_.]+[\[(].*|your[-_]\w*|include|same-origin|omit",
    re.IGNORECASE,
)
"""Placeholders in texts: parameters of SQL, variables, masks, calls in source code."""


class Rules(NamedTuple):
    forms: PatternSet
    """All forms together: most texts match none of them."""
    form_of: Mapping[str, PatternSet]
    """Each form by its name."""
    keys: Mapping[str, PatternSet]
    words: frozenset[str]
    """Words after a colon in messages and source code that are no secrets."""


@cache
def rules() -> Rules:
    read = tomllib.loads(files("receiver.platform.explain").joinpath("secret_rules.toml").read_text())
    forms = {name: _AFTER_ANOTHER_CHARACTER.format(form) for name, form in read["tokens"].items()} | read[
        "forms"
    ]
    return Rules(
        PatternSet(list(forms.values())),
        {name: PatternSet([form]) for name, form in forms.items()},
        {name: PatternSet(patterns) for name, patterns in read["keys"].items()},
        frozenset(read["words"]["harmless"].split()),
    )


def rule_of_text(text: str) -> str | None:
    """Return the name of the rule that a text matches; `None` if it has no secret."""
    for decoded in _decodings(text):
        if rule := _form_of(decoded):
            return rule
        if any(_has_secret(decoded, match) for pattern in _KEYS for match in pattern.finditer(decoded)):
            return KEY_RULE
        if any(_is_credential(match["value"]) for match in _SCHEME.finditer(decoded)):
            return "http-credentials"
    return None


def is_secret_value(key: str, value: object) -> bool:
    """Return whether the value of an attribute is a secret because of the name of its key."""
    if value is None or isinstance(value, bool) or value == "":
        return False
    kind = _kind_of(key)
    if kind == "secret":
        # The variable PWD of a shell is a directory.
        return not (key.lower().endswith("pwd") and str(value).startswith("/"))
    if kind == "random":
        return isinstance(value, str) and _is_random(value)
    return kind == "count" and not _is_number(value)


def _form_of(text: str) -> str | None:
    if not rules().forms.is_found_in(text):
        return None
    return next(name for name, form in rules().form_of.items() if form.is_found_in(text))


def _decodings(text: str) -> Iterator[str]:
    """Yield the text, and the text without each encoding around it."""
    yield text
    for _ in range(_DECODINGS_MAX):
        before = text
        if "%" in text:
            text = unquote(text)
        if "&" in text:
            text = html.unescape(text)
        if "\\" in text:
            text = re.sub(r"\\{2,}", r"\\", text)
            text = re.sub(r"\\(?:[nrt]|u000[ad])", " ", text)
            text = text.replace("\\u0022", '"').replace("\\u0026", "&").replace("\\", "")
        if text == before:
            return
        yield text


@lru_cache(maxsize=4_096)
def _kind_of_words(key: str) -> str:
    keys = rules().keys
    if keys["secret"].is_found_in(key):
        if keys["harmless"].is_found_in(key):
            return ""
        return "count" if keys["count"].is_found_in(key) else "secret"
    return "random" if keys["random"].is_found_in(key) and not keys["harmless"].is_found_in(key) else ""


def _kind_of(key: str) -> str:
    return _kind_of_words(_HUMP.sub("_", key[-KEY_CHARACTERS_MAX:]))


def _has_secret(text: str, key: re.Match[str]) -> bool:
    """Return whether a secret follows a key."""
    match = _VALUE.match(text, key.end()) if _kind_of(key["key"]) else None
    if match is None or not is_secret_value(key["key"], match["value"]):
        return False
    value, form = match["value"], key.groupdict()
    if form.get("quote"):
        return not _is_placeholder(value)
    # Names of images and of services have ports and versions: `auth:8080`.
    if form.get("separator") == ":" and not form["space"]:
        return _is_random(value)
    # Prose, SQL and source code: `token: expired`, `u.token = s.token`, `password=password`
    word = value.strip("()[]{}.:!?`").lower()
    last = word.rsplit(".", 1)[-1]
    return not (_is_placeholder(value) or word in rules().words or (last and last in key["key"].lower()))


def _is_placeholder(value: str) -> bool:
    bare = value.rstrip(")]}.:`") or value
    return _PLACEHOLDER.fullmatch(bare) is not None or bare.lower() in {"null", "none", "true", "false"}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and value.replace(".", "", 1).isdigit())


def _is_credential(value: str) -> bool:
    """Return whether a word after the name of a scheme is a credential, not a word of a sentence."""
    return any(each.isdigit() for each in value) or not (
        value.islower() or value.istitle() or value.isupper()
    )


def _is_random(value: str) -> bool:
    """Return whether a value has digits and letters, and the entropy of random characters."""
    if len(value) < _RANDOM_CHARACTERS_MIN or _IDENTIFIER.fullmatch(value):
        return False
    has_letters_and_digits = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return has_letters_and_digits and _entropy(value) >= _RANDOM_BITS_MIN


_IDENTIFIER: Final = re.compile(
    # UUIDs, digests in hexadecimal, times, addresses, paths, and words with separators
    r"sha\d{1,3}[:=-].*|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-f]{12,128}|\d{4}-\d\d-\d\d.*|\w+://.*|/.*|"
    r"(?:[A-Za-z]{2,}|\d{1,12}|v\d)(?:[-_.:/@](?:[A-Za-z]{1,20}\d{0,3}|[\d]{1,12}))+"
)


def _entropy(value: str) -> float:
    length = len(value)
    return -sum(count / length * math.log2(count / length) for count in Counter(value).values())


def mark(rule: str) -> str:
    """Return the text that replaces a secret that matched the rule."""
    return f"[redacted: {rule}]"


def counted_marks(text: str) -> dict[str, int]:
    """Return the number of replaced texts for each rule, the most frequent rule first."""
    return dict(Counter(_MARK.findall(text)).most_common())


class Redactor:
    def __init__(self, settings: Explain) -> None:
        self._keys = PatternSet(settings.redact_keys)
        self._patterns = PatternSet(settings.redact_patterns)

    def text(self, text: str) -> str:
        """Return the text, or a mark if it has a secret."""
        searched = text[:SEARCHED_CHARACTERS_MAX]
        if self._patterns.is_found_in(searched):
            return mark("redact_patterns")
        rule = rule_of_text(searched)
        return mark(rule) if rule else text

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """Return a value of a row with its secrets replaced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self._member(value, key) for key in value}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value

    def _member(self, members: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - any JSON
        # Attribute shifts have the key of an attribute and its value in two members.
        name = members.get("key", "") if key == "value" else key
        if isinstance(name, str):
            if self._keys.is_found_in(name[:SEARCHED_CHARACTERS_MAX]):
                return mark("redact_keys")
            if is_secret_value(name, members[key]):
                return mark(KEY_RULE)
        return self.value(members[key])
