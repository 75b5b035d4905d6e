"""Keeps the garbage collector of a test process away from what lives as long as the process.

Half a million objects of pytest and of all modules would be walked through again and again. And
services take what they have out of the collector's passes (`gc.freeze`), as they are alone in their
processes. Here many live one after another: the garbage of one would stay for ever, and each
collection would take longer than the one before. So these calls do nothing in a test, unless it
asks for `own_collector`; and what the web framework remembers of the functions of its last
applications, some hundreds of them with all that they reach, is forgotten after each test.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

_freeze = gc.freeze
_patch = pytest.MonkeyPatch()


def pytest_configure() -> None:
    """Let no service freeze what is not its own."""
    _leave_alone()


def pytest_unconfigure() -> None:
    """Undo it."""
    _patch.undo()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take all that there is before the first test out of the collector's passes."""
    gc.collect()
    _freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Let go of the applications of the test."""
    for kept in vars(sys.modules.get("fastapi.dependencies.models", gc)).values():
        if callable(forget := getattr(kept, "cache_clear", None)):
            forget()


@pytest.fixture
def own_collector() -> Iterator[None]:
    """Let the code under test freeze and unfreeze objects, as in a process of its own."""
    _patch.undo()
    yield
    _freeze()
    _leave_alone()


def _leave_alone() -> None:
    for name in ("freeze", "unfreeze"):
        _patch.setattr(gc, name, lambda: None)
