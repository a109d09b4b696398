"""Generator of what docs/ derives from code: settings, metrics, messages, reliability (`make docs`)."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import get_args

import msgspec

from docs.messages import protocol_page
from docs.reliability import reliability_page
from receiver import delivery_settings, metrics, settings
from receiver.config.keys import SettingKey, plain_key, setting_keys
from receiver.config.ranges import range_text, size_setting
from receiver.supervisor.admin import PREFIX

DOCS = Path(__file__).parent


def nested_table(field: msgspec.structs.FieldInfo) -> type[msgspec.Struct] | None:
    """Return the type of the table, or list of tables, that a field contains; None for other fields."""
    kinds = [field.type, *get_args(field.type)]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)), None)


def meanings() -> dict[tuple[str, str], str]:
    """Return (table, field) → the docstring below the field."""
    source = "\n".join(map(inspect.getsource, (delivery_settings, settings)))
    docstrings = {}
    for table in ast.parse(source).body:
        if isinstance(table, ast.ClassDef):
            for field, after in zip(table.body, table.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                    docstrings[table.name, ast.unparse(field.target)] = ast.literal_eval(after.value)
    return docstrings


def default_text(setting_key: SettingKey) -> str:
    """Return the default value of a setting in the syntax of the configuration file."""
    if setting_key.required:
        return "required"
    if setting_key.default in ((), None, ""):
        return ""
    if isinstance(setting_key.default, bool):
        return f"`{str(setting_key.default).lower()}`"
    if isinstance(setting_key.default, int) and setting_key.form == "bytes":
        return f"`{size_setting(setting_key.default)}`"
    if isinstance(setting_key.default, tuple):
        # A bar would end the cell of the table.
        return f"`{json.dumps(setting_key.default)}`".replace("|", "\\|")
    return f"`{setting_key.default!r}`".replace("'", '"')


def settings_rows(table: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Return a row for each key. Keys in a list of tables begin with the name of the list."""
    rows, docstrings = [], meanings()
    by_key = {plain_key(setting_key.path): setting_key for setting_key in setting_keys()}
    for field in msgspec.structs.fields(table):
        name = f"{prefix}{field.encode_name}"
        if inner := nested_table(field):
            rows += settings_rows(inner, f"{name}.")
        else:
            meaning = " ".join(docstrings.get((table.__name__, field.name), "").split())
            setting_key = by_key[name]
            rows.append(f"| `{name}` | {default_text(setting_key)} | {range_text(setting_key)} | {meaning} |")
    return rows


def settings_page() -> str:
    """Return the text of docs/settings.md."""
    return "\n".join(
        [
            "# Settings",
            "",
            "Written by `make docs` from `receiver/settings.py`. In the TOML file, `a.b` is key `b` of",
            "table `[a]`; `drain.`, `sampling.rule.` and `api.user.` are lists of tables.",
            "A secret can be in this file or the environment (`token`, `password`, …);",
            "`config show` hides it. A separate file that only the",
            "receiver can read is safer (`token_file`, `password_file`, …). A value outside its range is",
            "rejected at the start, on a reload, and by `trace-drain config check`. The range of a text is",
            "the range of its length.",
            "",
            "| key | default | range | meaning |",
            "|---|---|---|---|",
            *settings_rows(settings.Settings),
            "",
        ]
    )


def metric_row(name: str, spec: metrics.Spec) -> str:
    """Return the row of a metric, with its name and kind in Prometheus."""
    suffix = {"counter": "_total", "seconds": ""}.get(spec.kind, "")
    kind = {"counter": "counter", "seconds": "histogram"}.get(spec.kind, "gauge")
    labels = ", ".join([*spec.labels, *(["process"] if spec.kind == "gauge_by_process" else [])])
    return f"| `{PREFIX}{name}{suffix}` | {kind} | {labels} | {spec.help} |"


def metrics_page() -> str:
    """Return the text of docs/metrics.md."""
    rows = [metric_row(name, spec) for name, spec in sorted(metrics.METRICS.items())]
    return "\n".join(
        [
            "# Metrics",
            "",
            "Written by `make docs` from `receiver/metrics.py`. The admin port serves them at",
            "`/metrics`, merged over all processes.",
            "",
            "| name | kind | labels | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "protocol.md": protocol_page,
    "reliability.md": reliability_page,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())


if __name__ == "__main__":
    main()
