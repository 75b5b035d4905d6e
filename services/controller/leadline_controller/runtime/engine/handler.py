"""A duty of the active controller: which events it handles, and when else it is called upon.

Every keeper works within the one queue, so none ever runs beside another. What it
starts beside the queue (a timer, a wait for acknowledgements) only posts events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from leadline_controller.runtime.engine import events

Handler: TypeAlias = Callable[[Any], Awaitable[None]]
Handlers: TypeAlias = Mapping[type[events.Event], Handler]


class EventHandler:
    """The base of all duties; each part of it may be left as it is.

    `handlers` names the method that handles each event.
    """

    @property
    def handlers(self) -> Handlers:
        """Return who handles what; an event has one handler in the whole controller."""
        return {}

    async def take_over(self, cause: str) -> None:
        """Begin the term: take up what an earlier controller left (rule R8).

        States are published and brokers have been sent their grants by then.
        """

    async def reconcile(self, event: events.Reconcile) -> None:
        """Compare with ZooKeeper, and do what is due; brokers, topics and states are read."""

    def follow_up(self) -> None:
        """Post what the event has made due that was just handled, by whichever keeper."""

    async def close(self) -> None:
        """End what runs beside the queue."""
