"""Reading one step ahead, in a thread, of whoever handles what was read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar, cast

T = TypeVar("T")
_END: Final = object()


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator, while a thread makes the next one.

    Nobody else may use the iterator. It runs in the context of the first call, and by one thread at
    a time. What it raises is raised after the items before it. Closing waits for the item that is
    being made.
    """
    context = copy_context()

    def following() -> T | object:
        return context.run(lambda: next(items, _END))

    with ThreadPoolExecutor(1, "leadline-read-ahead") as thread:
        coming = thread.submit(following)
        while (item := coming.result()) is not _END:
            coming = thread.submit(following)
            yield cast("T", item)
