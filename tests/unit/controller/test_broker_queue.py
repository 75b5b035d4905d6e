"""How the pending roles of one broker are divided into requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from leadline_client.wire import TopicPartition
from leadline_common import rpc
from leadline_common.rpc import ControllerRow
from leadline_common.znodes import PartitionState
from leadline_controller.domain.cluster import StateSet
from leadline_controller.runtime.channel import broker_queue
from leadline_controller.runtime.channel.pending_roles import (
    FEW_ROLES,
    MOST_ROLES,
    PendingRoles,
)
from leadline_controller.runtime.channel.requests import RequestBuilder
from tests.support.services.zookeeper import until
from tests.unit.controller.broker_queues import Broker, Held, image_of, queue_of, sending, sent_in


@pytest.mark.parametrize(
    "sizes",
    [
        [1],
        [MOST_ROLES],
        [MOST_ROLES + 1],
        [3 * MOST_ROLES],
        [700] * 10,
        [1, MOST_ROLES, 1],
        [10, 2 * MOST_ROLES + 5, 10],
    ],
)
async def test_each_role_is_sent_once_and_no_request_has_too_many(sizes: list[int]) -> None:
    receiver = Broker()
    queue = queue_of(sizes, receiver)

    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    sent = sent_in(receiver.requests)
    expected = {(f"t{number}", p) for number, size in enumerate(sizes) for p in range(size)}
    assert sent == Counter(expected)
    counts = [sum(len(topic.partitions) for topic in one.topics) for one in receiver.requests]
    assert max(counts) <= MOST_ROLES
    assert len(counts) <= 2 * sum(sizes) / MOST_ROLES + 1


@pytest.mark.parametrize("refused", [("t0", 0), ("t3", 600), ("t9", 699)])
async def test_no_role_waits_for_one_that_is_refused(refused: tuple[str, int]) -> None:
    """All others precede the metadata, as without it; it is sent again until it is taken."""
    receiver = Broker()
    receiver.refused = {refused}
    sizes = [700] * 10
    queue = queue_of(sizes, receiver)

    async with sending(queue):
        await until(lambda: sent_in(receiver.requests)[refused] > 2, "it is sent again")
        assert receiver.before_metadata is not None
        assert len(sent_in(receiver.before_metadata)) == sum(sizes)
        assert queue.roles_pending
        assert not queue.roles_unanswered
        receiver.refused.clear()
        await until(lambda: queue.idle, "everything is acknowledged")

    others = sent_in(receiver.requests)
    del others[refused]
    assert set(others.values()) == {1}


async def test_what_is_added_does_not_wait_for_the_next_try_of_what_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_queue, "MIN_BACKOFF_S", 3_600.0)
    receiver, refused = Broker(), ("t0", 0)
    receiver.refused.add(refused)
    queue = queue_of([1, 1], receiver)
    async with sending(queue):
        await until(lambda: queue.has_metadata(queue.image.version), "the first round")
        queue.add_roles("t1", [0])
        queue.add_stop("t2", [0])
        await until(lambda: sent_in(receiver.requests)["t1", 0] == 2, "the role that was added")
        assert sent_in(receiver.requests)[refused] == 1

        receiver.refused.clear()
        queue.add_roles(*refused[:1], [refused[1]])  # another change of the partition
        await until(lambda: queue.idle, "everything is acknowledged")


async def test_a_broker_that_does_not_answer_is_left_alone_until_the_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_queue, "MIN_BACKOFF_S", 60)
    receiver = Broker()
    receiver.is_gone = True
    queue = queue_of([1, 1], receiver)
    async with sending(queue):
        await until(lambda: not queue.answers, "the first try")
        for _ in range(100):
            queue.add_roles("t1", [0])
            await asyncio.sleep(0)
        assert len(receiver.paths) == 1


async def test_a_broker_that_did_not_answer_is_tried_until_it_does() -> None:
    receiver = Broker()
    receiver.is_gone = True
    queue = queue_of([1, 1], receiver)
    async with sending(queue):
        await until(lambda: len(receiver.paths) > 2, "it is tried again and again")
        receiver.is_gone = False
        await until(lambda: queue.idle, "everything is acknowledged")


@pytest.mark.parametrize("steps", range(4))
async def test_a_queue_ends_that_is_cancelled_just_when_something_is_added(steps: int) -> None:
    """Python 3.11's `wait_for` loses a cancellation then, and the end of the term would hang."""
    receiver = Broker()
    receiver.refused = {("t0", 0)}
    queue = queue_of([1], receiver)
    running = asyncio.create_task(queue.run())
    await until(lambda: bool(queue._refused), "it waits before it sends the role again")

    queue.metadata_changed()
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()

    await until(running.done, "it ends")
    assert running.cancelled()


async def test_clients_learn_new_leaders_before_brokers_learn_whom_to_follow() -> None:
    receiver = Broker()
    queue = queue_of([FEW_ROLES, FEW_ROLES, MOST_ROLES], receiver, waiting=1)

    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    assert receiver.before_metadata is not None
    assert {topic for topic, _ in sent_in(receiver.before_metadata)} == {"t0", "t1"}
    assert sum(sent_in(receiver.requests).values()) == 2 * FEW_ROLES + MOST_ROLES


async def test_no_request_walks_through_all_pending_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure of many there are tens of thousands, and a request holds 2,000 of them."""
    walked = 0
    real = PendingRoles.__iter__

    def counted(roles: PendingRoles) -> Iterator[TopicPartition]:
        nonlocal walked
        for role in real(roles):
            walked += 1
            yield role

    monkeypatch.setattr(PendingRoles, "__iter__", counted)
    receiver, held = Broker(), Held()
    held.is_held = True
    queue = queue_of([1] + [100] * 200, receiver, waiting=200, held=held)

    async with sending(queue):
        await until(lambda: len(receiver.requests) == 1, "the first role is sent")
        held.is_held = False
        queue.metadata_changed()
        await until(lambda: queue.idle, "everything is acknowledged")

    assert sum(sent_in(receiver.requests).values()) == 1 + 100 * 200
    assert walked < 100


async def test_few_roles_are_one_request() -> None:
    receiver = Broker()
    queue = queue_of([FEW_ROLES - 1, 1], receiver, waiting=1)

    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    assert receiver.before_metadata == receiver.requests
    assert len(receiver.requests) == 1


async def test_no_role_that_may_wait_is_sent_while_more_is_being_written() -> None:
    """However many there are: they would take the processors from the writes and new leaders."""
    receiver = Broker()
    held = Held()
    held.is_held = True
    queue = queue_of([1, MOST_ROLES, 2], receiver, waiting=2, held=held)

    async with sending(queue):
        await until(lambda: len(receiver.requests) == 1, "the first role is sent")
        assert not queue._has_work
        held.is_held = False
        queue.metadata_changed()
        await until(lambda: queue.idle, "everything is acknowledged")

    assert receiver.before_metadata is not None
    assert set(sent_in(receiver.before_metadata)) == {("t0", 0)}
    assert sum(sent_in(receiver.requests).values()) == 1 + MOST_ROLES + 2


async def test_a_halt_waits_for_the_roles_that_wait() -> None:
    """A replica that is halted and then told to follow would catch up again."""
    receiver = Broker()
    held = Held()
    held.is_held = True
    queue = queue_of([1, 2], receiver, waiting=1, held=held)
    out_of_sync = PartitionState(2, 5, (2,), controller_epoch=7)
    queue.image.apply([StateSet("t1", 0, out_of_sync, 4, 11)])
    queue.add_halt("t1", [0])

    async with sending(queue):
        await until(lambda: bool(receiver.paths), "the first role is sent")
        assert receiver.paths == [rpc.LEADER_AND_ISR_PATH]
        held.is_held = False
        queue.metadata_changed()
        await until(lambda: rpc.STOP_REPLICA_PATH in receiver.paths, "the replica is halted")

    assert receiver.paths[1] == rpc.LEADER_AND_ISR_PATH


async def test_others_are_served_while_the_metadata_of_many_topics_is_encoded() -> None:
    """Each change of a topic is encoded once, for all brokers."""
    image = image_of([500] * 8)
    builder = RequestBuilder(image, "c1", ControllerRow(7, "http://127.0.0.1:1", 3), 1000)
    encoding = [asyncio.create_task(builder.encode_topics(None)) for _ in range(2)]
    turns = 0
    while not all(task.done() for task in encoding):
        await asyncio.sleep(0)
        turns += 1

    body, version = builder.metadata(image.brokers[1], None, "cause")

    assert turns >= 2
    assert version == image.version
    assert len(msgspec.json.decode(body)["topics"]) == 8
