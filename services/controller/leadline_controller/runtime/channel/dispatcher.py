"""Telling all brokers: one sender for each live incarnation, and what their heartbeats say.

Nothing here survives the controller, by design: a new one begins with a full
grant to every broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from leadline_client.wire import TopicPartition
from leadline_common import rpc
from leadline_common.rpc import HeartbeatRequest
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, StateSet, TopicImage
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from leadline_controller.runtime.channel.requests import is_visible

PATIENCE = 3
"""Heartbeats in a row that must disagree before a broker gets its full grant again."""
MOST_PATIENCE = 32 * PATIENCE
"""Grants that change nothing are repeated less often, down to one in so many heartbeats."""


class BrokerDispatcher:
    """The senders of all live brokers.

    `make_sender` builds one for a registration. Waiters learn of every step
    through `progressed`. While it `holds_metadata`, senders send none.
    """

    def __init__(
        self, image: ClusterImage, make_sender: Callable[[BrokerRegistration], BrokerRequestQueue]
    ) -> None:
        self._image = image
        self._make_sender = make_sender
        self._senders: dict[int, BrokerRequestQueue] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._disagreements: dict[int, _Disagreement] = {}
        self._digests = _Digests(image)
        self._progress = asyncio.Event()
        self.holds_metadata = False
        self.is_over = False

    # -- who is there ----------------------------------------------------------

    def meet_brokers(self, granted: Iterable[int], cause: str) -> None:
        """Follow the image: end the senders of who is gone, begin those of `granted` brokers."""
        for broker_id, sender in list(self._senders.items()):
            known = self._image.brokers.get(broker_id)
            if known is None or known.incarnation != sender.broker.incarnation:
                self._end(broker_id)
        for broker_id in granted:
            if broker_id in self._image.brokers and broker_id not in self._senders:
                self._begin(self._image.brokers[broker_id], cause)
        self.metadata()

    def _begin(self, broker: BrokerRegistration, cause: str) -> None:
        sender = self._make_sender(broker)
        sender.cause = cause
        sender.owe_grant()
        for topic in self._image.topics.values():
            hosted = _hosted(
                topic, broker.id, topic.partitions if topic.deleting else topic.pending_removal
            )
            if hosted:
                sender.owe_stop(topic.name, hosted)
        self._senders[broker.id] = sender
        self._tasks[broker.id] = asyncio.create_task(sender.run(), name=f"tell-{broker.id}")

    def _end(self, broker_id: int) -> None:
        del self._senders[broker_id]
        self._disagreements.pop(broker_id, None)
        self._tasks.pop(broker_id).cancel()

    async def close(self) -> None:
        """End all senders, and let go of whoever waits: what they wait for comes no more."""
        self.is_over = True
        self.progressed()
        tasks = list(self._tasks.values())
        for broker_id in list(self._senders):
            self._end(broker_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- what to tell ----------------------------------------------------------

    def roles(self, changes: Iterable[StateSet], cause: str) -> None:
        """Tell the replicas of these partitions their roles, and everybody the metadata."""
        by_broker: dict[int, dict[str, list[int]]] = {b: {} for b in self._senders}
        for change in changes:
            topic = self._image.topics.get(change.topic)
            partition = topic.partitions.get(change.partition) if topic else None
            if partition is None:
                continue
            self._digests.touch(change.topic, change.partition)
            for broker in partition.replicas:
                topics = by_broker.get(broker)
                if topics is not None:
                    topics.setdefault(change.topic, []).append(change.partition)
        for broker, topics in by_broker.items():
            for name, partitions in topics.items():
                self._owe(broker, name, partitions, cause)
        self.metadata()

    def _owe(self, broker_id: int, topic: str, partitions: Iterable[int], cause: str) -> None:
        """Owe a broker roles; one that is about to stop leaves those where it is not in sync."""
        sender = self._senders[broker_id]
        sender.cause = cause
        sender.owe_roles(topic, partitions)
        out = self._out_of_sync(broker_id, topic, partitions)
        if out:
            sender.owe_halt(topic, sorted(out))

    def _out_of_sync(self, broker_id: int, topic: str, partitions: Iterable[int]) -> set[int]:
        """Return the partitions that a broker which is about to stop need not follow any more."""
        if broker_id not in self._image.stopping:
            return set()
        known = self._image.topics[topic].partitions
        return {p for p in partitions if (s := known[p].state) and broker_id not in s.isr}

    def halt(self, broker_id: int, cause: str) -> None:
        """Have a broker that is about to stop leave its replicas that are not in sync.

        It would catch up and join the ISR again, to fail in it.
        """
        sender = self._senders.get(broker_id)
        if sender is None:
            return
        sender.cause = cause
        for topic, partitions in self._image.hosted_by(broker_id).items():
            out = self._out_of_sync(broker_id, topic, partitions)
            if out:
                sender.owe_halt(topic, sorted(out))

    def stop(self, topic: str, cause: str, partitions: Iterable[int] | None = None) -> None:
        """Tell the replicas of partitions that are to go (all, unless given) to delete their logs.

        The topic is under deletion, or the partitions are ordered to be removed.
        """
        found = self._image.topics[topic]
        going = list(found.partitions if partitions is None else partitions)
        for broker_id, sender in self._senders.items():
            hosted = _hosted(found, broker_id, going)
            if hosted:
                sender.cause = cause
                sender.owe_stop(topic, hosted)
        for partition in going:
            self._digests.touch(topic, partition)
        self.metadata()

    def drop(self, topic: str, drops: Mapping[int, Iterable[int]], cause: str) -> None:
        """Have brokers delete the replicas that a reassignment has taken from them.

        A broker that is away finds them unknown when it returns.
        """
        for number, brokers in drops.items():
            for broker_id in brokers:
                sender = self._senders.get(broker_id)
                if sender is not None:
                    sender.cause = cause
                    sender.owe_stop(topic, [number])

    def metadata(self) -> None:
        """Tell everybody the metadata, where it has changed."""
        for sender in self._senders.values():
            sender.metadata_changed()
        self.progressed()

    @contextmanager
    def metadata_held(self) -> Iterator[None]:
        """Send no metadata within the `with` statement: more changes are being written."""
        self.holds_metadata = True
        try:
            yield
        finally:
            self.holds_metadata = False
            self.metadata()

    def forget(self, names: Iterable[TopicPartition]) -> None:
        """Expect no broker to have these partitions any more, without telling anybody."""
        for name in names:
            self._digests.touch(*name)

    # -- how far it is ---------------------------------------------------------

    def progressed(self) -> None:
        """Wake whoever waits for acknowledgements."""
        self._progress.set()
        self._progress = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> bool:
        """Wait until a condition on this delivery holds; False if the term ends before."""
        while not condition():
            if self.is_over:
                return False
            await self._progress.wait()
        return True

    def settled(self) -> bool:
        """Tell whether no live broker is owed a role."""
        return not any(sender.owes_roles for sender in self._senders.values())

    def idle(self) -> bool:
        """Tell whether no live broker is owed anything, and nothing more is being written."""
        return not self.holds_metadata and all(s.idle for s in self._senders.values())

    def heard_of(self, topic: str, version: int) -> bool:
        """Tell whether every live broker acknowledged a topic's roles, and this metadata."""
        return not any(
            sender.owes(topic) or not sender.knows(version) for sender in self._senders.values()
        )

    def stopped(self, topic: str, partitions: Iterable[int] | None = None) -> bool:
        """Tell whether every live broker has stopped a topic, or only these partitions of it."""
        senders = self._senders.values()
        if partitions is None:
            return not any(sender.owes(topic) for sender in senders)
        going = list(partitions)
        return not any(sender.owes_stop_of(topic, going) for sender in senders)

    # -- what brokers say ------------------------------------------------------

    def on_heartbeat(self, beat: HeartbeatRequest) -> bool:
        """Compare what a broker has applied with what it should have; resend where they differ.

        Returns False when the broker, or this incarnation of it, is not known.
        """
        sender = self._senders.get(beat.broker_id)
        if sender is None or sender.broker.incarnation != beat.incarnation:
            return False
        if sender.owes_roles or sender.owes_stops or beat.broker_id in self._image.stopping:
            return True
        if beat.granted and (beat.replicas, beat.digest) == self._digests.of(beat.broker_id):
            self._disagreements.pop(beat.broker_id, None)
        elif not beat.granted or self._disagreement(beat.broker_id).lasts():
            sender.owe_grant()
        if sender.idle:
            sender.metadata_is(beat.metadata_version)
        return True

    def _disagreement(self, broker_id: int) -> _Disagreement:
        return self._disagreements.setdefault(broker_id, _Disagreement())


class _Disagreement:
    """Heartbeats in a row that disagree, and how many more are borne before the next grant."""

    __slots__ = ("_count", "_patience")

    def __init__(self) -> None:
        self._count = 0
        self._patience = PATIENCE

    def lasts(self) -> bool:
        """Count one more; True when the grant is due, after which the patience doubles."""
        self._count += 1
        if self._count < self._patience:
            return False
        self._count = 0
        self._patience = min(2 * self._patience, MOST_PATIENCE)
        return True


def _hosted(topic: TopicImage, broker_id: int, partitions: Iterable[int]) -> list[int]:
    """Return those of a topic's partitions that are assigned to a broker."""
    return [p for p in partitions if broker_id in topic.partitions[p].replicas]


class _Digests:
    """What each broker should have applied, summed up; kept up to date outside the failure path."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._prints: dict[tuple[str, int], tuple[int, tuple[int, ...]]] = {}
        self._sums: dict[int, tuple[int, int]] = {}
        self._touched: dict[tuple[str, int], None] = dict.fromkeys(
            (name.topic, name.partition) for name, _ in image.partitions()
        )

    def touch(self, topic: str, partition: int) -> None:
        """Note that a partition has changed; the arithmetic is done when somebody asks."""
        self._touched[topic, partition] = None

    def of(self, broker_id: int) -> tuple[int, int]:
        """Return how many replicas a broker should have, and their digest."""
        touched, self._touched = self._touched, {}
        for name in touched:
            fingerprint, replicas = self._prints.pop(name, (0, ()))
            self._add(fingerprint, replicas, -1)
            found = self._fingerprint(*name)
            if found is not None:
                self._prints[name] = found
                self._add(*found, 1)
        return self._sums.get(broker_id, (0, 0))

    def _fingerprint(self, name: str, number: int) -> tuple[int, tuple[int, ...]] | None:
        topic = self._image.topics.get(name)
        partition = topic.active_partition(number) if topic else None
        if topic is None or partition is None or partition.state is None or not is_visible(topic):
            return None
        epoch = partition.state.leader_epoch
        return rpc.replica_fingerprint(topic.topic_id, number, epoch), partition.replicas

    def _add(self, fingerprint: int, replicas: tuple[int, ...], one: int) -> None:
        for broker in replicas:
            count, digest = self._sums.get(broker, (0, 0))
            self._sums[broker] = (count + one, digest ^ fingerprint)
