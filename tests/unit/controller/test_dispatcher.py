"""Which brokers learn of new roles before clients learn of new leaders."""

from __future__ import annotations

from collections.abc import Set

import pytest

from leadline_controller.domain.cluster import StateSet
from tests.unit.controller.images import TOPIC, cluster, state
from tests.unit.controller.noted_roles import noting_dispatcher


@pytest.mark.parametrize(
    ("displaced", "waiting"),
    [(set(), {3, 4}), ({5}, {3, 4}), ({3}, {4}), (None, set())],
    ids=["nobody led", "the one that died", "one of them", "not known"],
)
async def test_only_who_followed_and_follows_again_waits(
    displaced: Set[int] | None, waiting: set[int]
) -> None:
    after = state(2, (2, 3, 4))
    dispatcher, queues = noting_dispatcher(cluster({2, 3, 4}, {0: (2, 3, 4)}, {0: after}))

    dispatcher.send_roles([StateSet(TOPIC, 0, after, 5, 50)], displaced)

    assert {broker for broker, queue in queues.items() if queue.waiting == [True]} == waiting
    assert all(len(queue.waiting) == 1 for queue in queues.values())
    await dispatcher.close()
