"""Which brokers learn of new roles before clients learn of new leaders."""

from __future__ import annotations

import asyncio

import pytest

from leadline_client.wire import NO_LEADER
from leadline_common.znodes import TopicAssignment
from leadline_controller.domain.cluster import StateSet, TopicSet
from leadline_controller.runtime.channel import dispatcher as dispatching
from tests.unit.controller.images import TOPIC, cluster, state
from tests.unit.controller.noted_roles import noting_dispatcher


@pytest.mark.parametrize(
    ("former", "waiting"),
    [(NO_LEADER, {3, 4}), (5, {3, 4}), (3, {4}), (2, {2, 3, 4}), (None, set())],
    ids=["nobody", "one that died", "one that follows", "the one that leads on", "not known"],
)
async def test_only_who_begins_or_ceases_to_lead_does_not_wait(
    former: int | None, waiting: set[int]
) -> None:
    after = state(2, (2, 3, 4))
    dispatcher, queues = noting_dispatcher(cluster({2, 3, 4}, {0: (2, 3, 4)}, {0: after}))

    leaders = None if former is None else [former]
    dispatcher.send_roles([StateSet(TOPIC, 0, after, 5, 50)], leaders)

    assert {broker for broker, queue in queues.items() if queue.waiting == [True]} == waiting
    assert all(len(queue.waiting) == 1 for queue in queues.values())
    await dispatcher.close()


async def test_replicas_of_a_broker_that_stops_are_halted_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop serves others between the topics of a broker with many replicas."""
    monkeypatch.setattr(dispatching, "MOST_HALTED", 2)
    image = cluster({2, 3}, {}, {})
    topics = [f"t{number}" for number in range(5)]
    for name in topics:
        replicas = dict.fromkeys(range(2), (2, 3))
        image.apply([TopicSet(name, TopicAssignment(f"id-{name}", replicas), 0, zxid=2)])
        image.apply([StateSet(name, 0, state(2, (2,)), 3, 10)])
        image.apply([StateSet(name, 1, state(2, (2, 3)), 3, 10)])
    dispatcher, queues = noting_dispatcher(image)
    image.mark_stopping(3)

    halting = asyncio.create_task(dispatcher.halt_replicas(3))
    seen = set()
    while not halting.done():
        await asyncio.sleep(0)
        seen.add(len(queues[3].halted))

    assert seen >= {1, 2, 3, 4, 5}
    assert queues[3].halted == {name: [0] for name in topics}, "partition 1 is in sync"
    await dispatcher.close()
