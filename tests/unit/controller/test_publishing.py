"""Which roles are sent when a topic that is read has a changed assignment."""

from __future__ import annotations

from typing import Any, cast

import pytest

from leadline_common.znodes import TopicAssignment
from leadline_controller.domain.cluster import TopicSet
from leadline_controller.runtime.engine.publishing import StatePublisher
from tests.unit.controller.images import TOPIC, cluster, state
from tests.unit.controller.noted_roles import noting_dispatcher

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
    publisher = StatePublisher(image, unused, unused, dispatcher, unused, unused)
    known = image.topics[TOPIC]

    assignment = TopicAssignment(known.topic_id, after, adding)
    publisher.apply_topics([TopicSet(TOPIC, assignment, known.version + 1, zxid=50)])

    assert {broker: queue.roles for broker, queue in queues.items() if queue.roles} == sent
    await dispatcher.close()
