"""Sending changes to all brokers: one request queue for each live incarnation.

None of this state survives the controller: the next one begins with a full grant to
every broker.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Final, TypeAlias

import structlog

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common import rpc
from leadline_common.rpc import HeartbeatRequest
from leadline_common.slices import in_turns, parts
from leadline_common.tracing.spans import background_context
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, StateSet, TopicImage
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue

logger = structlog.get_logger(__name__)

PAUSE_AFTER_FAULT_S: Final = 1.0
MOST_DIGESTED = 3_000
"""How many changed partitions a heartbeat has summed up: each takes 3 to 6 µs."""
MOST_HALTED = 5_000
"""How many replicas of a broker that is shutting down are looked at in one turn of the loop."""
MISMATCHES_BEFORE_GRANT = 3
"""Consecutive heartbeats that must disagree before a broker gets its full grant again."""
MAX_MISMATCHES = 32 * MISMATCHES_BEFORE_GRANT
"""The limit doubles with each grant that did not help, up to this."""

_RolesByBroker: TypeAlias = dict[int, dict[str, list[int]]]
"""Partition numbers by topic."""


class BrokerDispatcher:
    """The request queues of all live brokers.

    `make_queue` builds one for a registration. Waiters wake up at each call of
    `progressed`. While it `holds_metadata`, no metadata is sent.
    """

    def __init__(
        self, image: ClusterImage, make_queue: Callable[[BrokerRegistration], BrokerRequestQueue]
    ) -> None:
        self._image = image
        self._make_queue = make_queue
        self._queues: dict[int, BrokerRequestQueue] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._mismatches: defaultdict[int, _Mismatches] = defaultdict(_Mismatches)
        self._digests = Digests(image)
        self._progress = asyncio.Event()
        self.holds_metadata = False
        self.is_closed = False

    # -- the brokers -----------------------------------------------------------

    def follow_image(self, granted: Iterable[int]) -> None:
        """End the queues of brokers that are gone, and begin those of `granted` brokers."""
        for broker_id, queue in list(self._queues.items()):
            known = self._image.brokers.get(broker_id)
            if known is None or known.incarnation != queue.broker.incarnation:
                self._end(broker_id)
        for broker_id in granted:
            if broker_id in self._image.brokers and broker_id not in self._queues:
                self._begin(self._image.brokers[broker_id])
        self.send_metadata()

    def _begin(self, broker: BrokerRegistration) -> None:
        self._queues[broker.id] = self._full_queue(broker)
        self._tasks[broker.id] = asyncio.create_task(
            self._send_to(broker), name=f"dispatch-{broker.id}", context=background_context()
        )

    def _full_queue(self, broker: BrokerRegistration) -> BrokerRequestQueue:
        """Return a queue that holds all that a broker has to know."""
        queue = self._make_queue(broker)
        queue.set_cause()
        queue.add_grant()
        for topic in self._image.topics.values():
            leaving = topic.partitions if topic.deleting else topic.pending_removal
            hosted = _hosted(topic, broker.id, leaving)
            if hosted:
                queue.add_stop(topic.name, hosted)
        return queue

    async def _send_to(self, broker: BrokerRegistration) -> None:
        """Send to a broker until cancelled, whatever fails: nobody else sends to it.

        After a fault nobody knows what was pending: everything is from then on, and is sent again.
        """
        while True:
            try:
                await self._queues[broker.id].run()
            except Exception:
                logger.exception("sending to a broker failed", broker=broker.id)
                self._queues[broker.id] = self._full_queue(broker)
            if broker.id in self._image.stopping:
                await self.halt_replicas(broker.id)
            await asyncio.sleep(PAUSE_AFTER_FAULT_S)

    def _end(self, broker_id: int) -> None:
        del self._queues[broker_id]
        self._mismatches.pop(broker_id, None)
        self._tasks.pop(broker_id).cancel()

    async def close(self) -> None:
        """End all queues, and wake up the waiters."""
        self.is_closed = True
        self.progressed()
        tasks = list(self._tasks.values())
        for broker_id in list(self._queues):
            self._end(broker_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- sending ---------------------------------------------------------------

    def send_roles(self, changes: Sequence[StateSet], former: Sequence[int] | None = None) -> None:
        """Send roles to the replicas of these partitions, and metadata to every broker.

        `former` are the leaders of these partitions until now, None if they are not known. Roles
        that begin or end a leadership precede the metadata. If there are many, the others follow
        it: they change nothing for clients.
        """
        first: _RolesByBroker = {broker: {} for broker in self._queues}
        others: _RolesByBroker = {broker: {} for broker in self._queues}
        for change, before in zip(changes, former or repeat(None), strict=False):
            topic = self._image.topics.get(change.topic)
            partition = topic.partitions.get(change.partition) if topic else None
            if partition is None:
                continue
            self._digests.touch(change.topic, change.partition)
            leader = partition.state.leader if partition.state else NO_LEADER
            for broker in partition.replicas:
                waits = former is not None and (before == leader or broker not in (before, leader))
                topics = (others if waits else first).get(broker)
                if topics is not None:
                    topics.setdefault(change.topic, []).append(change.partition)
        self._add_roles(first, may_wait=False)
        self._add_roles(others, may_wait=True)
        self.send_metadata()

    def _add_roles(self, by_broker: _RolesByBroker, *, may_wait: bool) -> None:
        for broker, topics in by_broker.items():
            queue = self._queues[broker]
            for name, partitions in topics.items():
                queue.set_cause()
                queue.add_roles(name, partitions, may_wait=may_wait)
                self._halt_out_of_sync(queue, name, partitions)

    def _halt_out_of_sync(
        self, queue: BrokerRequestQueue, topic: str, partitions: Iterable[int]
    ) -> None:
        """Have a broker that is shutting down stop those replicas that are outside the ISR."""
        broker_id = queue.broker.id
        if broker_id not in self._image.stopping:
            return
        known = self._image.topics[topic].partitions
        halted = {p for p in partitions if (s := known[p].state) and broker_id not in s.isr}
        if halted:
            queue.add_halt(topic, sorted(halted))

    async def halt_replicas(self, broker_id: int) -> None:
        """Have a broker that is shutting down stop its replicas outside the ISR.

        Otherwise they would catch up, join the ISR again, and fail as members of it.
        """
        hosted = self._image.hosted_by(broker_id)
        topics = parts(list(hosted), lambda topic: len(hosted.get(topic, ())), MOST_HALTED)
        async for some in in_turns(topics):
            queue = self._queues.get(broker_id)
            if queue is None:
                return
            queue.set_cause()
            for topic in some:
                self._halt_out_of_sync(queue, topic, hosted.get(topic, ()))

    def delete_replicas(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """Have brokers delete the replicas of a topic, or only of these partitions of it.

        The topic is under deletion, or there are intents to remove the partitions.
        """
        found = self._image.topics[topic]
        leaving = list(found.partitions if partitions is None else partitions)
        for broker_id, queue in self._queues.items():
            hosted = _hosted(found, broker_id, leaving)
            if hosted:
                queue.set_cause()
                queue.add_stop(topic, hosted)
        for partition in leaving:
            self._digests.touch(topic, partition)
        self.send_metadata()

    def delete_reassigned(self, topic: str, dropped: Mapping[int, Iterable[int]]) -> None:
        """Have brokers delete replicas that a reassignment has removed.

        A broker that is down finds them to be stray replicas when it returns.
        """
        for number, brokers in dropped.items():
            for broker_id in brokers:
                queue = self._queues.get(broker_id)
                if queue is not None:
                    queue.set_cause()
                    queue.add_stop(topic, [number])

    def send_metadata(self) -> None:
        """Send metadata to every broker that does not have the latest version."""
        for queue in self._queues.values():
            queue.metadata_changed()
        self.progressed()

    @contextmanager
    def metadata_held(self) -> Iterator[None]:
        """Send no metadata within the `with` statement: more changes are being written."""
        self.holds_metadata = True
        try:
            yield
        finally:
            self.holds_metadata = False
            self.send_metadata()

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Expect no broker to have these partitions any more, without sending anything."""
        for topic_partition in topic_partitions:
            self._digests.touch(*topic_partition)

    # -- acknowledgements ------------------------------------------------------

    def progressed(self) -> None:
        """Wake up those who wait for acknowledgements."""
        self._progress.set()
        self._progress = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> bool:
        """Wait until a condition holds; return False if the term ends before."""
        while not condition():
            if self.is_closed:
                return False
            await self._progress.wait()
        return True

    def settled(self) -> bool:
        """Return whether every live broker that answers has answered for all roles.

        One that keeps refusing a role, or cannot be reached, would keep everything else waiting.
        """
        return not any(queue.roles_unanswered and queue.answers for queue in self._queues.values())

    def idle(self) -> bool:
        """Return whether every live broker has acknowledged everything."""
        return not self.holds_metadata and all(queue.idle for queue in self._queues.values())

    def is_acknowledged(self, topic: str, version: int) -> bool:
        """Return whether every live broker acknowledged a topic's roles, and this metadata."""
        return not any(
            queue.topic_pending(topic) or not queue.has_metadata(version)
            for queue in self._queues.values()
        )

    def is_stopped(self, topic: str, partitions: Iterable[int] | None = None) -> bool:
        """Return whether every live broker has stopped a topic, or these partitions of it."""
        queues = self._queues.values()
        if partitions is None:
            return not any(queue.topic_pending(topic) for queue in queues)
        stopping = list(partitions)
        return not any(queue.stop_pending(topic, stopping) for queue in queues)

    def can_connect(self, broker_id: int) -> bool:
        """Return whether there was a connection for the last request to a live broker, if any."""
        return not self._queues[broker_id].calls.cannot_connect

    # -- heartbeats ------------------------------------------------------------

    def on_heartbeat(self, beat: HeartbeatRequest) -> bool:
        """Compare what a broker has applied with what it should have; resend what differs.

        Returns False if the broker, or this incarnation of it, is not known.
        """
        queue = self._queues.get(beat.broker_id)
        if queue is None or queue.broker.incarnation != beat.incarnation:
            return False
        if queue.roles_unanswered or queue.stops_pending or beat.broker_id in self._image.stopping:
            return True
        for late in beat.late:
            queue.retry_role(late.topic, late.partition)
        if not beat.granted:
            queue.add_grant()
        elif self.settled() and self._digests.follow():
            if self._agrees(beat):
                self._mismatches.pop(beat.broker_id, None)
            elif self._mismatches[beat.broker_id].count_one():
                queue.add_grant()
        if queue.idle:
            queue.metadata_is(beat.metadata_version)
        return True

    def _agrees(self, beat: HeartbeatRequest) -> bool:
        """Compare what a broker has applied with what it should have.

        The roles that it refuses are left out on both sides: they are being sent again, and
        must not hide that it lacks others.
        """
        expected = self._digests.of(beat.broker_id)
        applied = beat.replicas, beat.digest
        for late in beat.late:
            expected = _removed(expected, self._digests.of_role(late, beat.broker_id))
            if late.taken_epoch >= 0:
                taken = rpc.replica_fingerprint(late.topic_id, late.partition, late.taken_epoch)
                applied = _removed(applied, taken)
        return applied == expected


@dataclass(slots=True)
class _Mismatches:
    """Consecutive heartbeats that disagree, and how many are allowed before the next grant."""

    count: int = 0
    limit: int = MISMATCHES_BEFORE_GRANT

    def count_one(self) -> bool:
        """Count one more; return True if a grant is due, and double the limit then."""
        self.count += 1
        if self.count < self.limit:
            return False
        self.count = 0
        self.limit = min(2 * self.limit, MAX_MISMATCHES)
        return True


def _hosted(topic: TopicImage, broker_id: int, partitions: Iterable[int]) -> list[int]:
    """Return those of a topic's partitions that are assigned to a broker."""
    return [p for p in partitions if broker_id in topic.partitions[p].replicas]


def _removed(summed: tuple[int, int], fingerprint: int | None) -> tuple[int, int]:
    """Return a number of replicas and their digest without one of them."""
    return summed if fingerprint is None else (summed[0] - 1, summed[1] ^ fingerprint)


class Digests:
    """The digest of each broker's replicas, computed outside the failure path."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._fingerprints: dict[TopicPartition, tuple[int, tuple[int, ...]]] = {}
        self._sums: dict[int, tuple[int, int]] = {}
        self._touched = dict.fromkeys(topic_partition for topic_partition, _ in image.partitions())

    def touch(self, topic: str, partition: int) -> None:
        """Note that a partition has changed; `follow` does the arithmetic."""
        self._touched[TopicPartition(topic, partition)] = None

    def follow(self) -> bool:
        """Take changed partitions into account; return whether all of them are by now.

        It takes some at a time: after a failover there are tens of thousands.
        """
        for topic_partition in list(islice(self._touched, MOST_DIGESTED)):
            del self._touched[topic_partition]
            self._add(*self._fingerprints.pop(topic_partition, (0, ())), -1)
            found = self._fingerprint(topic_partition)
            if found is not None:
                self._fingerprints[topic_partition] = found
                self._add(*found, 1)
        return not self._touched

    def of(self, broker_id: int) -> tuple[int, int]:
        """Return how many replicas a broker should have, and their digest, as of `follow`."""
        return self._sums.get(broker_id, (0, 0))

    def of_role(self, role: rpc.LateRow, broker_id: int) -> int | None:
        """Return the fingerprint of a role within `of`, None if it is not part of that."""
        topic = self._image.topics.get(role.topic)
        known = self._fingerprints.get(TopicPartition(role.topic, role.partition))
        if topic is None or topic.topic_id != role.topic_id or known is None:
            return None
        fingerprint, replicas = known
        return fingerprint if broker_id in replicas else None

    def _fingerprint(self, topic_partition: TopicPartition) -> tuple[int, tuple[int, ...]] | None:
        number = topic_partition.partition
        topic = self._image.topics.get(topic_partition.topic)
        partition = topic.active_partition(number) if topic else None
        if topic is None or partition is None or partition.state is None or not topic.is_visible:
            return None
        epoch = partition.state.leader_epoch
        return rpc.replica_fingerprint(topic.topic_id, number, epoch), partition.replicas

    def _add(self, fingerprint: int, replicas: tuple[int, ...], count: int) -> None:
        for broker in replicas:
            replica_count, digest = self._sums.get(broker, (0, 0))
            self._sums[broker] = (replica_count + count, digest ^ fingerprint)
