"""A controller dies between any two writes of a deletion, removal or growth; the next one goes on.

What is to be deleted must not come back on the way: no broker is granted a role in it, no
client is shown it, no state is written for it (rule R12).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import chain, count

import pytest

from leadline_client.errors import LeadlineError
from leadline_common import znodes
from leadline_common.partition_intents import intent_path, intents_path
from leadline_common.zk.ops import CreateOp
from leadline_common.zk.session import ZkSession
from leadline_controller.domain.cluster import ClusterImage
from tests.integration.test_controller_spine import audit
from tests.integration.test_controller_terms import is_whole
from tests.support.reassigning import read_topic
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import MortalStore, RunningController
from tests.support.services.zookeeper import until

TOPIC = "doomed"
ASSIGNMENT = {"0": [1, 2], "1": [2, 3], "2": [1, 3]}
BEFORE_OR_AFTER = pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])


async def mortal(rig: Rig) -> tuple[RunningController, MortalStore]:
    """Start a controller that can be cut short, with small transactions, so that there are many."""
    made = await rig.controller(store_type=MortalStore, zookeeper_multi_max_ops=5)
    await rig.settled(made)
    store = made.stores[-1]
    assert isinstance(store, MortalStore)
    return made, store


async def succeed(rig: Rig) -> RunningController:
    """Let another controller take over; it finds a broker gone, so it has leaders to elect."""
    await rig.brokers[1].leave()
    successor = await rig.controller()
    await rig.settled(successor)
    return successor


async def come_back(rig: Rig, controller: RunningController) -> None:
    """Bring the broker back that `succeed` has taken away, and end the controller."""
    await rig.brokers[1].register()
    await rig.settled(controller)
    await controller.retire()


def image_of(controller: RunningController) -> ClusterImage:
    elected = controller.leadership.active_controller
    assert elected is not None
    return elected.image


def over(controller: RunningController, is_done: Callable[[ClusterImage], bool]) -> bool:
    """Tell whether a controller has lost its leadership, or has finished."""
    elected = controller.leadership.active_controller
    return elected is None or is_done(elected.image)


def alive(rig: Rig, epoch: int, topic: str, partitions: set[int]) -> list[str]:
    """Say where the controller of an epoch presented partitions to a broker as alive."""
    found = []
    for broker in rig.brokers.values():
        grants = [g.topics for g in broker.leader_and_isr if g.controller_epoch == epoch]
        updates = [u.topics for u in broker.updates if u.controller.epoch == epoch]
        for rows in chain.from_iterable([*grants, *updates]):
            shown = {row.partition for row in rows.partitions}
            if rows.topic == topic and shown & partitions:
                found.append(f"broker {broker.id} heard of {rows}")
    return found


async def states_written_after(session: ZkSession, kind: str, topic: str) -> set[int]:
    """Return the partitions of a topic whose states were written after its entry `kind`."""
    entries = await audit(session)
    marks = [(entry.kind, entry.resource.get("topic")) for entry in entries]
    later = entries[marks.index((kind, topic)) :]
    return {row.partition for entry in later for row in entry.changes if row.topic == topic}


async def deletion_cut_short(
    rig: Rig, session: ZkSession, topic: str, cut: int, *, after: bool
) -> bool:
    """Cut a deletion short, and have it finished; return False if it has fewer writes."""
    doomed, store = await mortal(rig)
    await create(doomed, topic, replica_assignment=ASSIGNMENT)
    store.dies_after_sending, store.writes_left = after, cut
    with suppress(LeadlineError):
        await doomed.service.delete_topic(topic, 0)
    await until(lambda: over(doomed, lambda image: topic not in image.topics), "over")
    was_cut, store.writes_left = store.writes_left <= 0, -1
    await doomed.retire()  # What it has sent is written, or never will be.
    is_ordered = await session.exists(znodes.delete_topic_path(topic)) is not None
    successor = await succeed(rig)
    if is_ordered:
        image = image_of(successor)
        await until(lambda: topic not in image.topics, "the deletion is finished")
        assert not alive(rig, successor.epoch, topic, {0, 1, 2})
        assert not await states_written_after(session, "topic_deletion_ordered", topic)
    elif await session.exists(znodes.topic_path(topic)):
        assert not after
        await successor.http.delete(f"/v1/topics/{topic}?wait_ms=10000")
    for path in (znodes.topic_path(topic), znodes.delete_topic_path(topic)):
        assert await session.exists(path) is None
    await come_back(rig, successor)
    assert not any(name == topic for b in rig.brokers.values() for name, _ in b.roles)
    return was_cut


@BEFORE_OR_AFTER
async def test_defect_03_a_deletion_that_is_cut_short_never_brings_the_topic_back(
    rig: Rig, zk_session: ZkSession, *, after: bool
) -> None:
    await rig.add_brokers(1, 2, 3)
    for cut in count(1):
        if not await deletion_cut_short(rig, zk_session, f"{TOPIC}-{cut}", cut, after=after):
            break
    assert cut > 4


async def pending_removals(session: ZkSession, topic: str) -> set[int]:
    """Return the partitions that are in the topic's node and have an intent to remove them."""
    named = (await read_topic(session, topic)).partitions
    paths = [intent_path(znodes.PARTITIONS_REMOVE, topic, number) for number in named]
    found = await session.get_many(paths)
    return {number for number, node in zip(named, found, strict=True) if node is not None}


async def removal_cut_short(
    rig: Rig, session: ZkSession, topic: str, cut: int, *, after: bool
) -> bool:
    """Cut a removal of two partitions short, like `deletion_cut_short`."""
    doomed, store = await mortal(rig)
    await create(doomed, topic, replica_assignment=ASSIGNMENT)
    store.dies_after_sending, store.writes_left = after, cut
    path, body = f"/v1/topics/{topic}/partitions", {"partitions": [1, 2]}
    await doomed.http.request("DELETE", path, params={"wait_ms": 0}, json=body)
    await until(
        lambda: over(doomed, lambda image: len(image.topics[topic].partitions) == 1), "over"
    )
    was_cut, store.writes_left = store.writes_left <= 0, -1
    await doomed.retire()  # What it has sent is written, or never will be.
    pending = await pending_removals(session, topic)
    successor = await succeed(rig)
    found = image_of(successor).topics[topic]
    await until(lambda: not found.pending_removal, "the removal is finished")
    assert not pending & found.partitions.keys()
    assert not alive(rig, successor.epoch, topic, pending)
    if pending:
        kind = "partitions_removal_ordered"
        assert not pending & await states_written_after(session, kind, topic)
    states = await session.get_children(znodes.partitions_path(topic))
    assert set(states) == {str(number) for number in found.partitions}
    assert await session.exists(intents_path(znodes.PARTITIONS_REMOVE, topic)) is None
    await come_back(rig, successor)
    return was_cut


@BEFORE_OR_AFTER
async def test_defect_03_a_removal_that_is_cut_short_never_brings_a_partition_back(
    rig: Rig, zk_session: ZkSession, *, after: bool
) -> None:
    await rig.add_brokers(1, 2, 3)
    for cut in count(1):
        if not await removal_cut_short(rig, zk_session, f"{TOPIC}-{cut}", cut, after=after):
            break
    assert cut > 2


async def growth_cut_short(
    rig: Rig, session: ZkSession, topic: str, cut: int, *, after: bool
) -> bool:
    """Cut the creation and the growth of a topic by hand short; nothing is left half made."""
    doomed, store = await mortal(rig)
    store.dies_after_sending, store.writes_left = after, cut
    assignment = znodes.encode_topic(znodes.TopicAssignment("", {0: (1, 2), 1: (2, 3)}))
    await session.create(znodes.topic_path(topic), assignment)
    root = znodes.PARTITIONS_ADD
    intents = [CreateOp(intent_path(root, topic, number), b"[3, 1]") for number in (2, 3)]
    await session.multi([CreateOp(intents_path(root, topic)), *intents])
    await until(lambda: over(doomed, lambda image: has_partitions(image, topic, 4)), "over")
    was_cut, store.writes_left = store.writes_left <= 0, -1
    await doomed.retire()  # What it has sent is written, or never will be.
    successor = await succeed(rig)
    await until(lambda: has_partitions(image_of(successor), topic, 4), "it has all partitions")
    assert await is_whole(session, topic)
    assert (await read_topic(session, topic)).topic_id
    assert await session.exists(intents_path(root, topic)) is None
    await come_back(rig, successor)
    for broker in rig.brokers.values():
        hosted = {number for name, number in broker.roles if name == topic}
        assert hosted == {1: {0, 2, 3}, 2: {0, 1}, 3: {1, 2, 3}}[broker.id]
    return was_cut


def has_partitions(image: ClusterImage, topic: str, number: int) -> bool:
    """Tell whether a topic has so many partitions, each with a state."""
    found = image.topics.get(topic)
    states = [] if found is None else [partition.state for partition in found.partitions.values()]
    return len(states) == number and None not in states


@BEFORE_OR_AFTER
async def test_defect_03_growth_by_hand_that_is_cut_short_is_finished(
    rig: Rig, zk_session: ZkSession, *, after: bool
) -> None:
    await rig.add_brokers(1, 2, 3)
    for cut in count(1):
        if not await growth_cut_short(rig, zk_session, f"grown-{cut}", cut, after=after):
            break
    assert cut > 3
