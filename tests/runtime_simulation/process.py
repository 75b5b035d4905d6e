"""A simulated process: it ends for good when it is killed, and may be frozen before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Process:
    """One run of one service.

    `missed` are the callbacks that were due while it was frozen, and `descriptors` its open files.
    `stuck` is what its threads and the kernel do for it when its disk goes on; None while the disk
    answers.
    """

    name: str
    alive: bool = True
    frozen: bool = False
    missed: list[asyncio.Handle] = field(default_factory=list)
    descriptors: set[int] = field(default_factory=set)
    stuck: list[Callable[[], None]] | None = None

    def __str__(self) -> str:
        return self.name
