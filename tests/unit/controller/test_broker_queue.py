"""How the pending roles of one broker are divided into requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline_client.errors import ConnectionLost, StorageFailed
from leadline_client.wire import TopicPartition
from leadline_common import rpc
from leadline_common.identity import InternalAddress
from leadline_common.rpc import ControllerRow
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.domain.cluster import (
    BrokerUp,
    ClusterImage,
    DeletionPending,
    RemovalPending,
    StateSet,
    TopicSet,
)
from leadline_controller.runtime.channel import broker_queue
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from leadline_controller.runtime.channel.listener import DispatchListener
from leadline_controller.runtime.channel.pending_roles import FEW_ROLES, MOST_ROLES, PendingRoles
from leadline_controller.runtime.channel.requests import RequestBuilder
from tests.support.services.zookeeper import until
from tests.unit.controller.images import broker

_decode = msgspec.json.Decoder(rpc.LeaderAndIsrRequest).decode


class Broker:
    """Takes every role that is not `refused`, and has the latest metadata."""

    def __init__(self) -> None:
        self.requests: list[rpc.LeaderAndIsrRequest] = []
        self.paths: list[str] = []
        self.before_metadata: list[rpc.LeaderAndIsrRequest] | None = None
        self.refused: set[tuple[str, int]] = set()
        self.is_gone = False

    def code(self, topic: str, partition: int) -> int:
        return StorageFailed.code if (topic, partition) in self.refused else rpc.NO_ERROR

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        del to, timeout_ms
        self.paths.append(path)
        if self.is_gone:
            raise ConnectionLost("nobody answers")
        if path == rpc.UPDATE_METADATA_PATH:
            if self.before_metadata is None:
                self.before_metadata = list(self.requests)
            version = msgspec.json.decode(body)["version"]
            return msgspec.json.encode(rpc.UpdateMetadataResponse(1, version))
        if path == rpc.STOP_REPLICA_PATH:
            return msgspec.json.encode(rpc.CommandResponse(1, 0, [[rpc.NO_ERROR]]))
        request = _decode(body)
        self.requests.append(request)
        codes = [
            [self.code(topic.topic, row.partition) for row in topic.partitions]
            for topic in request.topics
        ]
        return msgspec.json.encode(rpc.CommandResponse(1, 0, codes))

    async def close(self) -> None:
        """Nothing is open."""


def image_of(sizes: list[int]) -> ClusterImage:
    """Return an image with topics of so many partitions, all led by broker 1."""
    image = ClusterImage(controller_epoch=7)
    image.apply([BrokerUp(broker(1), zxid=1)])
    for number, size in enumerate(sizes):
        assignment = TopicAssignment(f"id-{number}", dict.fromkeys(range(size), (1,)))
        image.apply([TopicSet(f"t{number}", assignment, 0, zxid=2)])
        state = PartitionState(1, 4, (1,), controller_epoch=6)
        image.apply([StateSet(f"t{number}", p, state, 3, 10) for p in range(size)])
    return image


class Held:
    """Whether metadata is held, because more changes are being written."""

    def __init__(self) -> None:
        self.is_held = False


def queue_of(
    sizes: list[int], receiver: Broker, *, waiting: int = 0, held: Held | None = None
) -> BrokerRequestQueue:
    """Return the queue of broker 1, with the roles of topics of so many partitions.

    The last `waiting` topics may wait for metadata.
    """
    held = held or Held()
    image = image_of(sizes)
    listener = DispatchListener(
        progressed=lambda: None,
        invalidate=lambda _: None,
        controller_changed=lambda: None,
        sent=lambda *_: None,
        holds_metadata=lambda: held.is_held,
    )
    builder = RequestBuilder(image, "c1", ControllerRow(7, "http://127.0.0.1:1", 3), 1000)
    queue = BrokerRequestQueue(image.brokers[1], image, builder, receiver, listener, 1000)
    for number, size in enumerate(sizes):
        may_wait = number >= len(sizes) - waiting
        queue.add_roles(f"t{number}", range(size), may_wait=may_wait)
    return queue


@asynccontextmanager
async def sending(queue: BrokerRequestQueue) -> AsyncIterator[None]:
    running = asyncio.create_task(queue.run())
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def sent_in(requests: Iterable[rpc.LeaderAndIsrRequest]) -> Counter[tuple[str, int]]:
    """Return how often each role was sent."""
    return Counter(
        (topic.topic, row.partition)
        for request in requests
        for topic in request.topics
        for row in topic.partitions
    )


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
    monkeypatch.setattr(broker_queue, "MIN_BACKOFF_S", 0.2)
    receiver = Broker()
    receiver.is_gone = True
    queue = queue_of([1, 1], receiver)
    async with sending(queue):
        await until(lambda: not queue.answers, "the first try")
        for _ in range(100):
            queue.add_roles("t1", [0])
            await asyncio.sleep(0)
        assert len(receiver.paths) == 1

        receiver.is_gone = False
        await until(lambda: queue.idle, "everything is acknowledged")


async def test_clients_learn_new_leaders_before_brokers_learn_whom_to_follow() -> None:
    receiver = Broker()
    queue = queue_of([FEW_ROLES, FEW_ROLES, MOST_ROLES], receiver, waiting=1)

    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    assert receiver.before_metadata is not None
    assert {topic for topic, _ in sent_in(receiver.before_metadata)} == {"t0", "t1"}
    assert sum(sent_in(receiver.requests).values()) == 2 * FEW_ROLES + MOST_ROLES


async def test_few_roles_are_one_request() -> None:
    receiver = Broker()
    queue = queue_of([FEW_ROLES - 1, 1], receiver, waiting=1)

    async with sending(queue):
        await until(lambda: queue.idle, "everything is acknowledged")

    assert receiver.before_metadata == receiver.requests
    assert len(receiver.requests) == 1


async def test_roles_that_wait_are_sent_when_they_fill_a_request() -> None:
    """While more changes are being written, full requests are sent, and the rest after that."""
    receiver = Broker()
    held = Held()
    held.is_held = True
    queue = queue_of([1, MOST_ROLES, 2], receiver, waiting=2, held=held)

    async with sending(queue):
        await until(lambda: len(receiver.requests) == 2, "the first and a full request are sent")
        assert queue.roles_pending
        assert set(sent_in(receiver.requests)) == {
            ("t0", 0),
            *(("t1", n) for n in range(MOST_ROLES)),
        }
        held.is_held = False
        queue.metadata_changed()
        await until(lambda: queue.idle, "everything is acknowledged")

    assert receiver.before_metadata is not None
    assert len(receiver.before_metadata) == 2 + 1, "few are left: no request of their own"
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


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sets(st.integers(0, 9), min_size=1), st.booleans()),
        max_size=12,
    ),
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 9))),
)
def test_each_pending_role_is_taken_once(
    added: list[tuple[int, set[int], bool]], stays: set[tuple[int, int]]
) -> None:
    """One that is added both as one of the first and as one that may wait is one of the first."""
    roles = PendingRoles()
    but = {TopicPartition(f"t{topic}", number) for topic, number in stays}
    for topic, numbers, may_wait in added:
        roles.add(f"t{topic}", numbers, may_wait=may_wait)
    all_added = {TopicPartition(f"t{topic}", n) for topic, numbers, _ in added for n in numbers}

    assert sorted(roles) == sorted(all_added)
    assert all(roles.has(*one) for one in all_added)
    taken = roles.take(but=but)

    found = [TopicPartition(topic, n) for topic, numbers in taken.items() for n in numbers]
    assert sorted(found) == sorted(all_added - but)
    assert sorted(roles) == sorted(all_added & but)


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
    queue.gateway = disk
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
    queue.gateway = disk
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
    queue.gateway = disk
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
