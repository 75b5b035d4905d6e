"""What lives long: the garbage collector need not walk through it again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 2_000
"""After so many new ones the garbage collector is told to leave alone what there is."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector while the block makes very many objects that will live long.

    Its passes over them take most of the time: 2.5 of 3 s for the batches of 200,000 producers.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class LongLived:
    """Counts objects that replace others or are new, and will live long.

    A pass of the collector over 60,000 replicas takes 0.3 s, and finds nothing: they are no
    garbage, and are freed without it. What is garbage in a cycle when `keep_from_collector` acts is
    not freed any more, unless `gc.unfreeze` is called: little, and not often.
    """

    def __init__(self, many: int = MANY) -> None:
        self._many = many
        self._new = 0

    def add(self, count: int = 1) -> None:
        """Count new ones."""
        self._new += count

    def keep_from_collector(self) -> None:
        """Take all objects that there are out of the collector's passes, if many are new."""
        if self._new >= self._many:
            self._new = 0
            gc.freeze()
