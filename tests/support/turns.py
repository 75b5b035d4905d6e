"""How often others have their turn on the event loop while something long is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def answer_and_turns(
    work: Coroutine[Any, Any, T], at_turn_2: Callable[[], object] = lambda: None
) -> tuple[T, int]:
    """Return the result of `work`, and how many turns others get meanwhile."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 2:
            at_turn_2()
    return await task, turns
