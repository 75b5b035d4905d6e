"""The directives that show classes of the client library from their docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterable

PACKAGE = "leadline_client"
_OPTIONS = (":members:", ":inherited-members: Exception, tuple", ":undoc-members:")

_FLOW = re.compile(r"[~\w.]*Generator\[.*Response \| None, (?P<result>.+)\]")


def result_of(annotation: str | None) -> str | None:
    """Return what a method returns to its caller, given its annotation.

    Blocking and asynchronous clients run the same flows, whose last type is the result.
    """
    flow = _FLOW.fullmatch(annotation or "")
    return flow["result"] if flow else annotation


def classes_of(names: Iterable[str]) -> str:
    """Return Markdown with a section for each public name of the package."""
    return (
        "\n\n".join(_class(name) if name[0].isupper() else _function(name) for name in names) + "\n"
    )


def _function(name: str) -> str:
    return f"## {name}\n\n```{{eval-rst}}\n.. autofunction:: {PACKAGE}.{name}\n```"


def _class(name: str) -> str:
    options = "\n".join(f"   {option}" for option in _OPTIONS)
    directive = f".. autoclass:: {PACKAGE}.{name}\n{options}"
    return f"## {name}\n\n```{{eval-rst}}\n{directive}\n```"
