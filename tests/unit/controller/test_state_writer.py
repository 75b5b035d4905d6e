"""The only writer of partition states: what each of its transactions checks (R7, R9, R10, R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common import znodes
from leadline_common.elections import ElectionReason
from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_common.zk.errors import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NotConnected,
    ZkError,
)
from leadline_common.zk.ops import CheckOp, MultiResults, Op, OpResult, SetOp, Stat
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.cluster import ClusterImage, StateSet
from leadline_controller.domain.failover import StateDecision, decide_all, none_stale
from leadline_controller.runtime.engine.guard import Guard, Mark
from leadline_controller.runtime.engine.state_writer import StaleImage, StateWriter
from leadline_controller.runtime.ports import ControllerStore
from tests.support.manual_clock import ManualClock
from tests.unit.controller.images import NAME, TOPIC, broker, cluster, state, the_state

TERM = LeadershipTerm(epoch=7, epoch_version=9)
EPOCH_CHECK = CheckOp(znodes.CONTROLLER_EPOCH, TERM.epoch_version)
ENTRY = AuditEntry(time=0, cause="cause", actor="test", kind="test", reason="test", changes=())
INCARNATION = 5
IMAGE_VERSION = 3


class Store:
    """Keeps each transaction; refuses those that `refusals` says, in turn."""

    def __init__(self) -> None:
        self.lease = True
        self.lost = asyncio.Event()
        self.sent: list[list[Op]] = []
        self.refusals: list[ZkError] = []
        self.found: list[StateSet] = []

    def lease_valid(self) -> bool:
        return self.lease

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        self.sent.append(list(ops))
        answer: asyncio.Future[MultiResults] = asyncio.get_running_loop().create_future()
        if self.refusals:
            answer.set_exception(self.refusals.pop(0))
        else:
            answer.set_result(MultiResults(map(result_of, ops), 100))
        return answer

    async def read_states(self, topic_partitions: Sequence[TopicPartition]) -> list[StateSet]:
        return [one for one in self.found if (one.topic, one.partition) in topic_partitions]

    async def read_nodes(self, paths: Sequence[str]) -> list[None]:
        return [None for _ in paths]


def result_of(op: Op) -> OpResult:
    return Stat(0, 100, 0, 0, op.version + 1, 0, 0, 0, 0, 0, 0) if isinstance(op, SetOp) else None


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def image() -> ClusterImage:
    """The leader, broker 1, is down; broker 2 is a live member of the ISR."""
    return cluster({2}, {0: (1, 2)}, {0: state(1, (1, 2))})


@pytest.fixture
def writer(store: Store, image: ClusterImage) -> StateWriter:
    image.brokers[2] = broker(2, INCARNATION)
    return StateWriter(
        cast("ControllerStore", store), image, TERM, ManualClock(), 100, lambda *_: None
    )


def decide(image: ClusterImage) -> list[StateDecision]:
    return decide_all(image, [NAME], none_stale)


async def test_every_write_checks_the_controller_epoch(
    writer: StateWriter, store: Store, image: ClusterImage
) -> None:
    await writer.commit([SetOp("/a", b"", 0)], ENTRY)
    await writer.commit_all([SetOp("/a", b"", 0)], ENTRY)
    await writer.write(decide(image), ENTRY, lambda _: decide(image))

    assert [ops[0] for ops in store.sent] == [EPOCH_CHECK] * 3


async def test_it_tells_which_brokers_led(writer: StateWriter) -> None:
    """Broker 1, which led partition 0, is down; broker 2 leads on in partition 1."""
    states = {0: state(1, (1, 2)), 1: state(2, (1, 2))}
    image = cluster({2}, {0: (1, 2), 1: (1, 2), 2: (1, 2)}, states)
    image.brokers[2] = broker(2, INCARNATION)
    writer.image = image
    told: list[object] = []
    writer.on_written = lambda written, former: told.append(
        ([(change.partition, change.state.leader) for change in written], former)
    )

    names = [TopicPartition(TOPIC, partition) for partition in range(3)]
    await writer.write(decide_all(image, names, none_stale), ENTRY, lambda _: [])

    assert told == [([(0, 2), (1, 2), (2, 2)], [1, 2, NO_LEADER])]


async def test_a_failed_check_of_the_epoch_ends_the_term(
    writer: StateWriter, store: Store, image: ClusterImage
) -> None:
    refusal = MultiFailed(0, BadVersion(znodes.CONTROLLER_EPOCH))
    store.refusals = [refusal, refusal]

    with pytest.raises(TermEnded):
        await writer.commit([SetOp("/a", b"", 0)], ENTRY)
    with pytest.raises(TermEnded):
        await writer.write(decide(image), ENTRY, lambda _: decide(image))


async def test_without_its_lease_it_sends_nothing(
    writer: StateWriter, store: Store, image: ClusterImage
) -> None:
    store.lease = False

    with pytest.raises(TermEnded):
        await writer.commit([SetOp("/a", b"", 0)], ENTRY)
    with pytest.raises(TermEnded):
        await writer.commit_all([SetOp("/a", b"", 0)], ENTRY)
    with pytest.raises(TermEnded):
        await writer.write(decide(image), ENTRY, lambda _: decide(image))
    assert not store.sent


@pytest.mark.parametrize(
    ("failure", "is_sent"), [(NotConnected(), False), (ConnectionLoss(), True)]
)
async def test_a_multi_without_a_connection_is_known_to_have_changed_nothing(
    failure: ZkError, is_sent: bool, writer: StateWriter, store: Store
) -> None:
    """Otherwise the outcome of a request that was never begun would be unknown (R7)."""
    store.refusals.append(failure)
    writer.guard = Guard(mark=Mark(SetOp("/key", b"", 0), TERM.epoch))
    with pytest.raises(type(failure)):
        await writer.commit([], ENTRY)
    await asyncio.sleep(0)  # The answer was there at once: who counts them is told now.
    assert (writer.has_sent_since(0), writer.guard.marked) == (is_sent, is_sent)


async def test_a_multi_that_another_request_could_not_send_does_not_count(
    writer: StateWriter, store: Store
) -> None:
    """Its answer may come while the next request has sent one."""
    store.refusals.append(NotConnected())
    with pytest.raises(NotConnected):
        await writer.commit([], ENTRY)
    before = writer.sent
    await writer.commit([], ENTRY)
    await asyncio.sleep(0)
    assert writer.has_sent_since(before)
    assert not writer.has_sent_since(writer.sent)


async def test_a_state_names_only_a_leader_of_the_incarnation_that_was_elected(
    writer: StateWriter, store: Store, image: ClusterImage
) -> None:
    await writer.write(decide(image), ENTRY, lambda _: decide(image))

    assert CheckOp(znodes.broker_epoch_path(2), INCARNATION) in store.sent[0]


async def test_a_leader_that_has_registered_again_is_not_elected(
    writer: StateWriter, store: Store, image: ClusterImage
) -> None:
    store.refusals = [MultiFailed(1, BadVersion(znodes.broker_epoch_path(2)))]

    with pytest.raises(StaleImage):
        await writer.write(decide(image), ENTRY, lambda _: decide(image))


async def test_what_was_written_is_told_although_another_transaction_was_refused(
    writer: StateWriter, store: Store
) -> None:
    """Broker 1 led all four partitions, of which one transaction takes three."""
    numbers = range(4)
    states = dict.fromkeys(numbers, state(1, (1, 2)))
    image = writer.image = cluster({2}, dict.fromkeys(numbers, (1, 2)), states)
    image.brokers[2], writer.max_ops = broker(2, INCARNATION), 6
    told: list[tuple[int, ElectionReason]] = []
    writer.on_decided = lambda decisions: told.extend((d.partition, d.reason) for d in decisions)
    store.refusals = [MultiFailed(1, BadVersion(znodes.broker_epoch_path(2)))]

    names = [TopicPartition(TOPIC, partition) for partition in numbers]
    with pytest.raises(StaleImage):
        await writer.write(decide_all(image, names, none_stale), ENTRY, lambda _: [])

    assert told == [(3, ElectionReason.ISR)]


async def test_a_state_is_replaced_at_the_version_that_was_decided_from(
    writer: StateWriter, store: Store, image: ClusterImage
) -> None:
    await writer.write(decide(image), ENTRY, lambda _: decide(image))

    (written,) = [op for op in store.sent[0] if isinstance(op, SetOp)]
    assert (written.path, written.version) == (znodes.state_path(TOPIC, 0), IMAGE_VERSION)
    assert (the_state(image).leader, the_state(image).isr) == (2, (2,))


async def test_a_state_that_has_changed_is_decided_again(
    writer: StateWriter, store: Store, image: ClusterImage
) -> None:
    """The former leader had removed broker 2 from the ISR, so that nobody may lead (rule R7)."""
    found = StateSet(TOPIC, 0, state(1, (1,)), IMAGE_VERSION + 1, 50)
    store.refusals = [MultiFailed(2, BadVersion(znodes.state_path(TOPIC, 0)))]
    store.found = [found]

    (written,) = await writer.write(decide(image), ENTRY, lambda _: decide(image))

    assert (written.version, written.after.leader, written.after.isr) == (found.version, -1, (1,))
