"""Keeps garbage collection fast in a test process, however many tests it runs.

- The objects of pytest and of all modules, half a million, are frozen before the first test.
- `gc.freeze` and `gc.unfreeze`, which services call, do nothing. A service expects a process of its
  own; here the garbage of each one would stay frozen. A test of these calls uses `own_collector`.
- FastAPI's caches are cleared after each test. They keep the endpoints of hundreds of applications
  alive, and everything that those refer to.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

_freeze = gc.freeze
_patch = pytest.MonkeyPatch()


def pytest_configure() -> None:
    """Disable freezing."""
    _disable_freezing()


def pytest_unconfigure() -> None:
    """Enable it again."""
    _patch.undo()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freeze what exists before the first test."""
    gc.collect()
    _freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Clear FastAPI's caches, if it is imported."""
    module = sys.modules.get("fastapi.dependencies.models")
    for function in vars(module).values() if module else ():
        if callable(clear := getattr(function, "cache_clear", None)):
            clear()


@pytest.fixture
def own_collector() -> Iterator[None]:
    """Enable freezing for one test."""
    _patch.undo()
    yield
    _freeze()
    _disable_freezing()


def _disable_freezing() -> None:
    for name in ("freeze", "unfreeze"):
        _patch.setattr(gc, name, lambda: None)
