"""What is written first, and which roles are sent when a topic that is read has changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_common.znodes import TopicAssignment
from leadline_controller.domain.cluster import TopicSet
from leadline_controller.domain.failover import StateDecision, on_broker_change
from leadline_controller.runtime.engine.publishing import StatePublisher
from tests.unit.controller.images import TOPIC, brokers, cluster, state
from tests.unit.controller.noted_roles import noting_dispatcher


async def test_partitions_without_a_leader_are_written_first() -> None:
    """Broker 1 dies: it led 1 and 3, and followed in 0, 2 and 4; 5 had no leader yet."""
    replicas = {number: (1, 2) if number % 2 else (2, 1) for number in range(6)}
    states = {number: state(replicas[number][0], (1, 2)) for number in range(5)}
    image = cluster({1, 2}, replicas, states)
    written: list[int] = []

    async def write(decisions: list[StateDecision], *_: object) -> list[StateDecision]:
        written.extend(decision.partition for decision in decisions)
        return []

    dispatcher, _ = noting_dispatcher(image)
    given: list[Any] = [
        SimpleNamespace(noticed_at=None),
        SimpleNamespace(write=write),
        dispatcher,
        SimpleNamespace(entry=lambda *_, **__: None),
    ]
    publisher = StatePublisher(image, *given)

    await publisher.write(on_broker_change(image, brokers({2})).decisions, "broker_change")

    assert written == [1, 3, 5, 0, 2, 4]
    await dispatcher.close()


BEFORE = {0: (2, 3, 4), 1: (3, 4), 2: (4, 2)}


@pytest.mark.parametrize(
    ("after", "adding", "sent"),
    [
        (BEFORE, {}, {}),
        ({**BEFORE, 0: (2, 3)}, {}, {2: [0], 3: [0]}),
        ({**BEFORE, 1: (3, 4, 2)}, {1: (2,)}, {2: [1], 3: [1], 4: [1]}),
        (BEFORE, {2: (2,)}, {2: [2], 4: [2]}),
    ],
    ids=["unchanged", "one removed", "one added", "one is being added"],
)
async def test_replicas_that_were_read_are_sent_to_those_that_are_left(
    after: dict[int, tuple[int, ...]],
    adding: dict[int, tuple[int, ...]],
    sent: dict[int, list[int]],
) -> None:
    """A leader that counts a replica that is gone acknowledges nothing: seed 24881.

    The answer to the write was lost, and roles were sent before the topic was read again.
    """
    states = {number: state(replicas[0], replicas) for number, replicas in BEFORE.items()}
    image = cluster({2, 3, 4}, BEFORE, states)
    dispatcher, queues = noting_dispatcher(image)
    unused = cast("Any", None)
    publisher = StatePublisher(image, unused, unused, dispatcher, unused)
    known = image.topics[TOPIC]

    assignment = TopicAssignment(known.topic_id, after, adding)
    publisher.apply_topics([TopicSet(TOPIC, assignment, known.version + 1, zxid=50)])

    assert {broker: queue.roles for broker, queue in queues.items() if queue.roles} == sent
    await dispatcher.close()
