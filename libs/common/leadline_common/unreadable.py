"""The znodes that this process could not read: logged once each, counted, and shown.

An operator or a broken tool may write anything into ZooKeeper. What cannot be read is passed over,
and stays here until it is readable again, or gone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import structlog

logger = structlog.get_logger(__name__)

MAX_KEPT: Final = 10_000
_SHOWN: Final = 3
_MAX_REASON: Final = 300


@dataclass(eq=False, slots=True)
class UnreadableNodes:
    """Paths and reasons; at most `MAX_KEPT`, so that no amount of garbage fills the memory."""

    _reasons: dict[str, str] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, path: str, problem: object) -> None:
        """Note that a node cannot be read; log it unless that is known."""
        reason = str(problem)[:_MAX_REASON]
        if self._reasons.get(path) == reason:
            return
        logger.error("node unreadable", path=path, reason=reason)
        if path in self._reasons or len(self._reasons) < MAX_KEPT:
            self._reasons[path] = reason

    def discard(self, path: str) -> None:
        """Note that a node was read, or is gone."""
        if self._reasons and self._reasons.pop(path, None) is not None:
            logger.info("node readable again, or gone", path=path)

    def retain(self, parent: str, names: Collection[str]) -> None:
        """Forget the nodes below `parent` whose first name is not among `names`: they are gone."""
        if not self._reasons:
            return
        prefix, present = f"{parent}/", set(names)
        for path in list(self._reasons):
            if path.startswith(prefix) and path[len(prefix) :].partition("/")[0] not in present:
                self.discard(path)

    def summary(self) -> str:
        """Return a sentence for operators; empty if all nodes can be read."""
        if not self._reasons:
            return ""
        rows = [f"{path} ({reason})" for path, reason in list(self._reasons.items())[:_SHOWN]]
        more = len(self._reasons) - len(rows)
        rest = f" and {more} more" if more else ""
        return f"nodes in ZooKeeper cannot be read and are passed over: {', '.join(rows)}{rest}"


UNREADABLE: Final = UnreadableNodes()
"""Of this process."""
