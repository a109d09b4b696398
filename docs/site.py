"""Hook of the documentation site: pages that live outside docs/, and links that must work on the site."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
INCLUDED = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "benchmarks/index.md": "benchmarks/README.md",
    "benchmarks/store.md": "benchmarks/STORE.md",
    "benchmarks/long.md": "benchmarks/LONG.md",
    "benchmarks/ui.md": "benchmarks/UI.md",
}
"""Pages of the site, and the files of the repository that they show."""
_PAGE_OF = {source: page for page, source in INCLUDED.items()}
_LINK = re.compile(r"\[([^\]\[]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401 - a page of MkDocs
    """Return the text of a page, with links that lead to pages of the site; other links become plain text."""
    name = page.file.src_uri
    source = INCLUDED.get(name)
    text = (ROOT / source).read_text() if source else markdown
    directory = (ROOT / (source or f"docs/{name}")).parent

    def site_link(found: re.Match[str]) -> str:
        target = os.path.relpath(directory / found[2], ROOT)
        inside = str(PurePosixPath(target).relative_to("docs")) if target.startswith("docs/") else ""
        linked = _PAGE_OF.get(target) or (inside if (ROOT / "docs" / inside).is_file() and inside else "")
        if not linked:
            return found[1]
        return f"[{found[1]}]({os.path.relpath(linked, PurePosixPath(name).parent)}{found[3] or ''})"

    return _LINK.sub(site_link, text)
