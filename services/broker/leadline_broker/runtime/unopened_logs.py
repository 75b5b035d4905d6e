"""Logs that could not be opened when the broker started are opened once there is space.

Replicas found on disk are opened before the broker registers. On a full disk, or without a free
descriptor, some cannot be, and the broker registers without them: each has a directory id of its
own, as a lost one has (rule R17). Once they are open, the broker registers again, as if it had been
restarted, and they count as what they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from leadline_broker.domain.state import ReplicaKey

logger = structlog.get_logger(__name__)

_AGAIN_S: Final = 5.0


class UnopenedLogs(Protocol):
    """The logs of a broker that are not open; an adapter implements it."""

    @property
    def has_retriable(self) -> bool:
        """Whether any of them only lacked space or a descriptor."""

    def open_again(self) -> bool:
        """Open those; return whether all are open now. For a thread: recovery may take long."""

    def is_unused(self, key: ReplicaKey) -> bool:
        """Return whether this one is not open, or its deletion has failed so far."""


async def open_later(logs: UnopenedLogs, register_again: Callable[[], None]) -> None:
    """Try again every few seconds, and register once all are open; never returns."""
    while True:
        await asyncio.sleep(_AGAIN_S)
        if logs.has_retriable and await asyncio.to_thread(logs.open_again):
            logger.warning("logs opened that had lacked space or descriptors: registering again")
            register_again()
