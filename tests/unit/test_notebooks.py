"""Notebooks are committed without what they printed, so that a diff shows changes of the text."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.test_repository import name, tracked


def unstripped(notebook: dict[str, Any]) -> list[str]:
    """Return what a notebook holds of a run or of an editor."""
    found = [f"metadata.{key}" for key in notebook["metadata"].keys() - {"kernelspec"}]
    if notebook["metadata"].get("language_info", {"name": "python"}) == {"name": "python"}:
        found = [one for one in found if one != "metadata.language_info"]
    for cell in notebook["cells"]:
        parts = ("outputs", "execution_count", "metadata")
        found += [f"{cell['id']}: {part}" for part in parts if cell.get(part)]
    return found


def test_notebooks_have_no_outputs() -> None:
    notebooks = tracked(".ipynb")
    assert notebooks
    found = {name(path): unstripped(json.loads(path.read_text("utf-8"))) for path in notebooks}
    assert {path: parts for path, parts in found.items() if parts} == {}


def test_the_check_sees_what_a_run_leaves() -> None:
    cell = {"id": "a", "outputs": [{}], "execution_count": 1, "metadata": {"tags": []}}
    ran = {"metadata": {"language_info": {"version": "3.11"}, "kernelspec": {}}, "cells": [cell]}
    expected = ["metadata.language_info", "a: outputs", "a: execution_count", "a: metadata"]
    assert unstripped(ran) == expected
