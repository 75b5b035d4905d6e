"""The full grant of one broker, which is built in turns while its replicas change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline_client.errors import ConnectionLost
from leadline_common import rpc
from leadline_common.identity import InternalAddress
from leadline_common.znodes import PartitionState
from leadline_controller.domain.cluster import (
    ClusterImage,
    DeletionPending,
    RemovalPending,
    StateSet,
    TopicSet,
)
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from tests.support.services.zookeeper import until
from tests.unit.controller.broker_queues import Broker, queue_of, sending, sent_in


async def test_a_role_that_changes_while_the_grant_is_built_is_sent_after_it() -> None:
    """The grant is built in turns, and may have the role as it was."""
    receiver = Broker()
    queue = queue_of([2_000] * 4, receiver)
    queue.add_grant()
    async with sending(queue):
        await asyncio.sleep(0)
        assert not receiver.requests
        assert queue.roles_unanswered
        assert not queue.idle
        state = PartitionState(1, 5, (1,), controller_epoch=6)
        queue.image.apply([StateSet("t0", 7, state, 4, 11)])
        queue.add_roles("t0", [7])
        await until(lambda: queue.idle, "everything is acknowledged")

    grant, *later = receiver.requests
    assert [request.is_init for request in receiver.requests] == [True, False]
    assert sum(len(topic.partitions) for topic in grant.topics) == 8_000
    assert [epoch_in(request, "t0", 7) for request in (grant, *later)] == [4, 5]


class Disk(Broker):
    """Keeps replicas on its disk as a broker does, and those that a grant has made stray."""

    def __init__(self, image: ClusterImage) -> None:
        super().__init__()
        self.replicas = {
            (name, number) for name, topic in image.topics.items() for number in topic.partitions
        }
        self.strays: set[tuple[str, int]] = set()
        self.on_stop: Callable[[], None] = lambda: None

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        if path == rpc.STOP_REPLICA_PATH:
            self.on_stop()
            await asyncio.sleep(0)
            stop = msgspec.json.decode(body, type=rpc.StopReplicaRequest)
            self.replicas -= {(t.topic, row.partition) for t in stop.topics for row in t.partitions}
            self.paths.append(path)
            codes = [[rpc.NO_ERROR] * len(topic.partitions) for topic in stop.topics]
            return msgspec.json.encode(rpc.CommandResponse(1, 0, codes))
        answer = await super().post(to, path, body, timeout_ms)
        if path == rpc.LEADER_AND_ISR_PATH:
            named = set(sent_in(self.requests[-1:]))
            if self.requests[-1].is_init:
                self.strays |= self.replicas - named
                self.replicas &= named
            self.replicas |= named
        return answer


def delete(queue: BrokerRequestQueue, name: str) -> None:
    """Begin to delete a topic, as the controller does."""
    queue.image.apply([DeletionPending(name, 20)])
    queue.add_stop(name, queue.image.topics[name].partitions)


@pytest.mark.parametrize("name", ["t0", "t3"])
async def test_what_is_to_be_deleted_while_the_grant_is_built_becomes_no_stray(name: str) -> None:
    """The log of a deleted topic would be kept for a day, though its deletion was reported."""
    queue = queue_of([2_000] * 4, Broker())
    disk = Disk(queue.image)
    queue.calls.gateway = disk
    queue.add_grant()
    async with sending(queue):
        await asyncio.sleep(0)
        assert not disk.paths
        delete(queue, name)
        assert queue.topic_pending(name)
        await until(lambda: queue.idle, "everything is acknowledged")

    assert not disk.strays
    assert {topic for topic, _ in disk.replicas} == {"t0", "t1", "t2", "t3"} - {name}
    assert len(disk.replicas) == 3 * 2_000


async def test_a_grant_waits_for_a_deletion_whose_answer_is_lost() -> None:
    queue = queue_of([2_000] * 4, Broker())
    disk = Disk(queue.image)
    queue.calls.gateway = disk
    queue.add_grant()

    def fail_once() -> None:
        disk.on_stop = lambda: None
        raise ConnectionLost("nobody answers")

    disk.on_stop = fail_once
    async with sending(queue):
        await asyncio.sleep(0)
        delete(queue, "t3")
        await until(lambda: queue.idle, "everything is acknowledged")

    assert not disk.strays


def move(queue: BrokerRequestQueue, name: str, number: int, *, to: int) -> None:
    """Reassign a partition to this broker or to another one, as the controller does."""
    topic = queue.image.topics[name]
    replicas = {**topic.assignment.partitions, number: (to,)}
    assignment = msgspec.structs.replace(topic.assignment, partitions=replicas)
    queue.image.apply([TopicSet(name, assignment, topic.version + 1, zxid=topic.zxid + 1)])
    if to == queue.broker.id:
        queue.add_roles(name, [number])
    else:
        queue.add_stop(name, [number])


def remove(queue: BrokerRequestQueue, name: str, number: int) -> None:
    """Begin to remove a partition, as the controller does."""
    removed = queue.image.topics[name].pending_removal | {number}
    queue.image.apply([RemovalPending(name, removed)])
    queue.add_stop(name, [number])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["delete", "remove", "move away", "move here"]),
            st.integers(0, 3),
            st.integers(0, 1),
        ),
        max_size=8,
    )
)
@example([(0, "move away", 0, 0), (0, "move here", 0, 0)])
async def test_whatever_happens_while_a_grant_is_built_the_broker_has_its_replicas(
    events: list[tuple[int, str, int, int]],
) -> None:
    queue = queue_of([2] * 4, Broker())
    one_at_a_time = partial(queue.image.topic_parts, 1)
    disk, at_stop = Disk(queue.image), events[4:]
    queue.calls.gateway = disk
    queue.add_grant()

    def happen(kind: str, topic: int, number: int) -> None:
        name = f"t{topic}"
        if kind == "delete":
            delete(queue, name)
        elif kind == "remove":
            remove(queue, name, number)
        elif not queue.image.topics[name].deleting:
            move(queue, name, number, to=1 if kind == "move here" else 2)

    def next_at_stop() -> None:
        if at_stop:
            happen(*at_stop.pop(0)[1:])

    disk.on_stop = next_at_stop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue.image, "topic_parts", one_at_a_time)
        async with sending(queue):
            await asyncio.sleep(0)
            for turns, kind, topic, number in events[:4]:
                for _ in range(turns):
                    await asyncio.sleep(0)
                happen(kind, topic, number)
            await until(lambda: queue.idle, "everything is acknowledged")

    assert not disk.strays
    assert disk.replicas == {
        (name, number)
        for name, topic in queue.image.topics.items()
        for number, partition in topic.active_partitions.items()
        if partition.replicas == (1,) and not topic.deleting
    }


def epoch_in(request: rpc.LeaderAndIsrRequest, topic: str, partition: int) -> int:
    return next(
        row.leader_epoch
        for one in request.topics
        for row in one.partitions
        if (one.topic, row.partition) == (topic, partition)
    )
