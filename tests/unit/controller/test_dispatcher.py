"""Which brokers learn of new roles before clients learn of new leaders."""

from __future__ import annotations

from collections.abc import Set
from typing import cast

import pytest

from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import StateSet
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from tests.unit.controller.images import TOPIC, cluster, state


class Queue:
    """Notes which roles it is given, and sends nothing."""

    def __init__(self, registration: BrokerRegistration) -> None:
        self.broker = registration
        self.waiting: list[bool] = []

    async def run(self) -> None:
        """Send nothing."""

    def add_roles(self, _topic: str, _partitions: object, *, may_wait: bool) -> None:
        self.waiting.append(may_wait)

    def set_cause(self) -> None:
        """Have no cause."""

    def add_grant(self) -> None:
        """Grant nothing."""

    def metadata_changed(self) -> None:
        """Have no metadata."""


@pytest.mark.parametrize(
    ("displaced", "waiting"),
    [(set(), {3, 4}), ({5}, {3, 4}), ({3}, {4}), (None, set())],
    ids=["nobody led", "the one that died", "one of them", "not known"],
)
async def test_only_who_followed_and_follows_again_waits(
    displaced: Set[int] | None, waiting: set[int]
) -> None:
    queues: dict[int, Queue] = {}

    def make_queue(registration: BrokerRegistration) -> BrokerRequestQueue:
        made = queues[registration.id] = Queue(registration)
        return cast("BrokerRequestQueue", made)

    after = state(2, (2, 3, 4))
    dispatcher = BrokerDispatcher(cluster({2, 3, 4}, {0: (2, 3, 4)}, {0: after}), make_queue)
    dispatcher.follow_image((2, 3, 4))

    dispatcher.send_roles([StateSet(TOPIC, 0, after, 5, 50)], displaced)

    assert {broker for broker, queue in queues.items() if queue.waiting == [True]} == waiting
    assert all(len(queue.waiting) == 1 for queue in queues.values())
    await dispatcher.close()
