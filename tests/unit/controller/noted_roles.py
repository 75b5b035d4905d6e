"""A dispatcher whose queues note which roles they are given, and send nothing."""

from __future__ import annotations

from typing import cast

from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher


class Queue:
    """Notes the partitions of the roles for one broker, and whether they may wait."""

    def __init__(self, registration: BrokerRegistration) -> None:
        self.broker = registration
        self.roles: list[int] = []
        self.waiting: list[bool] = []
        self.halted: dict[str, list[int]] = {}

    async def run(self) -> None:
        """Send nothing."""

    def add_roles(self, _topic: str, partitions: list[int], *, may_wait: bool) -> None:
        self.roles += partitions
        self.waiting.append(may_wait)

    def add_halt(self, topic: str, partitions: list[int]) -> None:
        self.halted[topic] = partitions

    def set_cause(self) -> None:
        """Have no cause."""

    def add_grant(self) -> None:
        """Grant nothing."""

    def metadata_changed(self) -> None:
        """Have no metadata."""


def noting_dispatcher(image: ClusterImage) -> tuple[BrokerDispatcher, dict[int, Queue]]:
    """Return a dispatcher to the brokers of an image, and its queues by broker."""
    queues: dict[int, Queue] = {}

    def make_queue(registration: BrokerRegistration) -> BrokerRequestQueue:
        made = queues[registration.id] = Queue(registration)
        return cast("BrokerRequestQueue", made)

    dispatcher = BrokerDispatcher(image, make_queue)
    dispatcher.follow_image(image.brokers)
    return dispatcher, queues
