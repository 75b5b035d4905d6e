"""A simulated process: it ends for good when it is killed, and may be frozen before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Process:
    """One run of one service.

    `missed` are the callbacks that were due while it was frozen, and `descriptors` its open files.
    """

    name: str
    alive: bool = True
    frozen: bool = False
    missed: list[asyncio.Handle] = field(default_factory=list)
    descriptors: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return self.name
