"""The directives that show classes of the client library from their docstrings."""

from __future__ import annotations

from collections.abc import Iterable

PACKAGE = "leadline_client"
_OPTIONS = (":members:", ":inherited-members: Exception, tuple", ":undoc-members:")


def classes_of(names: Iterable[str]) -> str:
    """Return Markdown with a section for each public name of the package."""
    return "\n\n".join(_class(name) for name in names) + "\n"


def _class(name: str) -> str:
    options = "\n".join(f"   {option}" for option in _OPTIONS)
    directive = f".. autoclass:: {PACKAGE}.{name}\n{options}"
    return f"## {name}\n\n```{{eval-rst}}\n{directive}\n```"
