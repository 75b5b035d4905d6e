"""What the site adds to the Markdown pages while Sphinx reads them.

A comment in a page, which is not shown where the repository is hosted, says what to add there:

    <!-- contents -->               the pages of the list below, as part of the table of contents
    <!-- openapi: broker.json -->   the operations of a document of openapi/
    <!-- python: Client Producer --> what the client library's names are, from their docstrings

A link to a directory leads to its README.md; without one, only its text stays. Links to other files
of the repository become downloads, which is what MyST makes of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from documentation.http_reference import reference_of
from documentation.python_reference import classes_of, result_of

ROOT = Path(__file__).resolve().parents[2]
_MARKER = re.compile(r"^<!-- (contents|openapi|python)(?:: (.+?))? -->$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)#\s]+)\.md\)", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#:]+)\)")


def expanded(text: str, page: Path) -> str:
    """Return a page's text with what its comments ask for, and without links to directories."""

    def addition(marker: re.Match[str]) -> str:
        kind, argument = marker.groups()
        if kind == "contents":
            return _contents(text[marker.end() :])
        if kind == "openapi":
            return reference_of(ROOT / "openapi" / argument)
        return classes_of(argument.split())

    return _LINK.sub(
        lambda link: _without_directory(link, page.parent), _MARKER.sub(addition, text)
    )


def _contents(text: str) -> str:
    """Return the directive for the pages that a list names."""
    entries = _ENTRY.findall(text)
    return "\n".join(["```{toctree}", ":hidden:", ":titlesonly:", "", *entries, "```"])


def _without_directory(link: re.Match[str], folder: Path) -> str:
    text, target = link.groups()
    if not (folder / target).is_dir():
        return link[0]
    return f"[{text}]({target}/README.md)" if (folder / target / "README.md").exists() else text


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = expanded(source[0], Path(app.env.doc2path(docname)))


def _signature(_app: Sphinx, *event: Any) -> tuple[str | None, str | None]:
    parameters, returned = event[-2:]
    return parameters, result_of(returned)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register this extension; Sphinx calls it."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
