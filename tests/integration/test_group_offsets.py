"""Committed offsets and groups that go: deletions, late requests and lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from leadline_client.errors import (
    NotCoordinator,
    RebalanceInProgress,
    StaleGeneration,
    TopicIdMismatch,
    UnknownPartition,
)
from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes, znodes
from leadline_common.zk.errors import ConnectionLoss
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_coordinator.adapters.group_nodes import GroupNodes
from leadline_coordinator.domain.records import Ends
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.maintenance import GroupMaintenance
from tests.support.services.cluster import wait_until
from tests.support.services.coordinators import (
    CoordinatorRig,
    FrameConsumer,
    coordinator,
    make_topic,
)
from tests.support.services.zookeeper import until

P = TopicPartition("orders", 0)
OFFSETS = "/v1/groups/g/offsets"


class StoreGate:
    """Holds back calls of one method of a coordinator's `GroupNodes`, or lets them fail."""

    def __init__(self, nodes: GroupNodes, method: str) -> None:
        self.reached = asyncio.Event()
        self.let_through = asyncio.Event()
        self.failures: list[Exception] = []
        self._call: Callable[..., Awaitable[Any]] = getattr(nodes, method)
        setattr(nodes, method, self)

    async def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.reached.set()
        if self.failures:
            raise self.failures.pop()
        await self.let_through.wait()
        return await self._call(*arguments, **options)


@pytest.fixture
async def rig(zk_chroot: str, zk_session: ZkSession) -> AsyncIterator[CoordinatorRig]:
    await make_topic(zk_session, "orders", 2, topic_id="first")
    async with coordinator(zk_chroot, offsets_retention_ms=0) as made:
        await made.active()
        yield made


def gate(rig: CoordinatorRig, method: str) -> StoreGate:
    assert rig.store is not None
    return StoreGate(rig.store.groups, method)


def active(rig: CoordinatorRig) -> Coordinator:
    assert rig.elector.coordinator is not None
    return rig.elector.coordinator


async def commit(
    rig: CoordinatorRig, offset: int, epoch: int | None = None, **body: Any
) -> httpx.Response:
    row = {"topic": "orders", "partition": 0, "offset": offset}
    if epoch is not None:
        row["leader_epoch"] = epoch
    return await rig.http.post(OFFSETS, json={"offsets": [row]} | body)


async def committed(rig: CoordinatorRig) -> dict[int, int]:
    """Return the offsets of the topic by partition, as the coordinator shows them."""
    answer = await rig.http.get(OFFSETS)
    rows = answer.json()["offsets"] if answer.status_code == httpx.codes.OK else []
    return {row["partition"]: row["offset"] for row in rows if row["topic"] == "orders"}


async def stored(session: ZkSession) -> dict[TopicPartition, int]:
    """Return the offsets in ZooKeeper."""
    groups = await GroupNodes(session).load()
    return {one: found.offset for group in groups for one, found in group.offsets.items()}


async def deleted(
    session: ZkSession, left: Mapping[TopicPartition, int] = MappingProxyType({})
) -> None:
    """Wait until ZooKeeper has only these offsets."""

    async def is_done() -> bool:
        return await stored(session) == left

    await wait_until(is_done, "all others are deleted")


async def joined(rig: CoordinatorRig) -> FrameConsumer:
    """Return a consumer that owns the whole topic."""
    consumer = FrameConsumer(rig.url, "g")
    await consumer.connect()
    await until(lambda: len(consumer.owned) == 2, "the consumer owns the topic")
    return consumer


def by_member(consumer: FrameConsumer, **changed: Any) -> dict[str, Any]:
    """Return what a commit of a member states about it."""
    assert consumer.welcome is not None
    member = {
        "member": consumer.member,
        "secret": consumer.secret,
        "generation": consumer.generation,
        "coordinator_epoch": consumer.welcome.coordinator_epoch,
    }
    return member | changed


# -- topics that are deleted and recreated ---------------------------------------------


async def test_defect_34_a_late_commit_of_a_partition_that_was_added_again_is_refused(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    await commit(rig, 500, epoch=3)
    await make_topic(zk_session, "orders", 2, topic_id="first", first_epochs={0: 4})
    await until(lambda: active(rig).topics.topics["orders"].first_epochs == {0: 4}, "it is seen")
    assert await committed(rig) == {}

    late = await commit(rig, 500, epoch=3)
    assert late.json()["offsets"][0]["error_code"] == UnknownPartition.code
    assert await committed(rig) == {}

    good = await commit(rig, 5, epoch=4)
    assert good.json()["offsets"][0]["error_code"] == 0
    assert await committed(rig) == {0: 5}


@pytest.mark.parametrize("by_reset", [False, True])
async def test_defect_41_an_offset_without_an_epoch_does_not_outlive_its_partition(
    rig: CoordinatorRig, zk_session: ZkSession, zk_chroot: str, by_reset: bool
) -> None:
    """The partition is removed and added again while no coordinator looks."""
    if by_reset:
        rig.brokers.ends[P] = Ends(0, 500)
        reset = {"to": "latest", "partitions": [{"topic": "orders", "partition": 0}]}
        assert (await rig.http.post(f"{OFFSETS}/reset", json=reset)).status_code == httpx.codes.OK
    else:
        await commit(rig, 500)
    assert await committed(rig) == {0: 500}
    await rig.resign()
    await make_topic(zk_session, "orders", 2, topic_id="first", first_epochs={0: 4})

    async with coordinator(zk_chroot, 2) as successor:
        await successor.active()
        assert await committed(successor) == {}
        await commit(successor, 7)
        assert await committed(successor) == {0: 7}
        await deleted(zk_session, left={P: 7})


async def test_defect_41_a_late_commit_without_an_epoch_of_a_former_partition_is_refused(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    consumer = await joined(rig)
    former = by_member(consumer)
    await make_topic(zk_session, "orders", 2, topic_id="first", first_epochs={0: 4})
    await until(lambda: consumer.generation > former["generation"], "it is told of the new one")

    late = await commit(rig, 500, **former)
    assert late.json()["error_code"] == StaleGeneration.code
    assert await committed(rig) == {}
    good = await commit(rig, 5, **by_member(consumer))
    assert good.json()["offsets"][0]["error_code"] == 0
    assert await committed(rig) == {0: 5}
    await consumer.drop()


async def recreate(rig: CoordinatorRig, session: ZkSession, topic_id: str) -> None:
    await make_topic(session, "orders", 2, topic_id=topic_id)
    await until(lambda: active(rig).topics.topic_ids.get("orders") == topic_id, "it is seen")


async def test_defect_04_an_offset_whose_deletion_was_cut_off_is_not_handed_out(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    await commit(rig, 500)
    cut = gate(rig, "write_offsets")
    cut.failures.append(ConnectionLoss())

    cut.let_through.set()
    await recreate(rig, zk_session, "second")
    assert await committed(rig) == {}, "gone at once, whatever ZooKeeper says"
    consumer = await joined(rig)
    assert ("orders", 0, None, None) in consumer.starts[-1].offsets

    await deleted(zk_session)
    await consumer.drop()


async def test_defect_04_the_next_coordinator_compares_topic_ids(
    rig: CoordinatorRig, zk_session: ZkSession, zk_chroot: str
) -> None:
    """Of one topic name some offsets are of the topic before, and some of the present one."""
    await commit(rig, 500)
    cut = gate(rig, "write_offsets")
    await recreate(rig, zk_session, "second")
    await cut.reached.wait()
    await rig.resign()
    path = consumer_znodes.offset_path("g", "orders", 1)
    value = consumer_znodes.OffsetNode(7, 0, topic_id="second")
    await zk_session.create(path, consumer_znodes.encode(value))

    async with coordinator(zk_chroot, 2) as successor:
        await successor.active()
        assert await committed(successor) == {1: 7}
        await deleted(zk_session, left={TopicPartition("orders", 1): 7})


async def test_defect_04_a_commit_of_an_earlier_topic_of_the_same_name_is_refused(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    consumer = await joined(rig)
    assert dict(consumer.starts[-1].topic_ids) == {"orders": "first"}
    former = by_member(consumer)
    await recreate(rig, zk_session, "second")
    await until(lambda: consumer.generation > former["generation"], "it is told of the new one")

    late = await commit(rig, 500, **by_member(consumer, topic_ids={"orders": "first"}))
    good = await commit(rig, 5, **by_member(consumer, topic_ids={"orders": "second"}))

    assert late.json()["offsets"][0]["error_code"] == TopicIdMismatch.code
    assert (await commit(rig, 500, **former)).json()["error_code"] == StaleGeneration.code
    assert good.json()["offsets"][0]["error_code"] == 0
    assert await committed(rig) == {0: 5}
    await consumer.drop()


async def test_defect_04_a_commit_in_flight_does_not_outlive_its_topic(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    writing = gate(rig, "write_offsets")
    committing = asyncio.create_task(commit(rig, 500))
    await writing.reached.wait()
    await recreate(rig, zk_session, "second")

    writing.let_through.set()
    await committing
    assert await committed(rig) == {}
    await deleted(zk_session)


async def test_defect_04_offsets_survive_a_topic_node_that_cannot_be_read(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    await make_topic(zk_session, "orders", 2, topic_id="first")
    async with coordinator(zk_chroot) as before:
        await before.active()
        await commit(before, 500)
    data, _ = await zk_session.get(znodes.topic_path("orders"))
    await zk_session.set(znodes.topic_path("orders"), b"not a topic", ANY_VERSION)
    async with coordinator(zk_chroot, 2) as successor:
        await successor.active()
        await zk_session.set(znodes.topic_path("orders"), data, ANY_VERSION)
        await until(lambda: "orders" in active(successor).topics.counts, "it is readable again")
        assert await committed(successor) == {0: 500}


# -- the order of commits --------------------------------------------------------------


async def test_defect_05_late_commit_does_not_move_an_offset_back(rig: CoordinatorRig) -> None:
    consumer = await joined(rig)
    rows = [{"topic": "orders", "partition": number, "offset": 10} for number in range(2)]
    newer = await commit(rig, 20, **by_member(consumer, sequence=2))
    late = await commit(rig, 10, **by_member(consumer, sequence=1, offsets=rows))

    assert newer.json()["offsets"][0] == answered(0)
    assert late.json()["offsets"] == [answered(0, superseded=True), answered(1)]
    assert await committed(rig) == {0: 20, 1: 10}
    await consumer.drop()


async def test_defect_05_a_repeated_commit_and_a_seek_backwards_take_effect(
    rig: CoordinatorRig,
) -> None:
    consumer = await joined(rig)
    await commit(rig, 20, **by_member(consumer, sequence=1))
    repeated = await commit(rig, 20, **by_member(consumer, sequence=1))
    assert repeated.json()["offsets"][0] == answered(0)
    assert await committed(rig) == {0: 20}
    sought = await commit(rig, 5, **by_member(consumer, sequence=2))
    assert sought.json()["offsets"][0] == answered(0)
    assert await committed(rig) == {0: 5}
    await consumer.drop()


async def test_defect_05_a_commit_whose_answer_was_lost_is_repeated_safely(
    rig: CoordinatorRig,
) -> None:
    consumer = await joined(rig)
    cut = gate(rig, "write_offsets")
    cut.let_through.set()
    cut.failures.append(ConnectionLoss())
    unknown = await commit(rig, 20, **by_member(consumer, sequence=1))
    assert unknown.json()["outcome"] == "unknown"
    again = await commit(rig, 20, **by_member(consumer, sequence=1))
    assert again.json()["offsets"][0] == answered(0)
    assert await committed(rig) == {0: 20}
    await consumer.drop()


def answered(partition: int, *, superseded: bool = False) -> dict[str, Any]:
    """Return the row of an answer to a commit without an error."""
    row = {"topic": "orders", "partition": partition, "error_code": 0, "message": None}
    return row | {"superseded": superseded}


# -- groups that are deleted -----------------------------------------------------------


async def _expire(rig: CoordinatorRig) -> None:
    maintenance = GroupMaintenance(active(rig))

    async def is_expired() -> bool:
        """Tell whether both clocks have gone on since the last commit."""
        return await maintenance.expire() == ["g"]

    await wait_until(is_expired, "the group is past its time")


async def _delete(rig: CoordinatorRig) -> None:
    assert (await rig.http.delete("/v1/groups/g")).status_code == httpx.codes.OK


@pytest.mark.parametrize("end", [_delete, _expire])
async def test_defect_06_a_join_waits_for_the_end_of_its_group_and_starts_without_offsets(
    rig: CoordinatorRig,
    zk_session: ZkSession,
    end: Callable[[CoordinatorRig], Awaitable[None]],
) -> None:
    await commit(rig, 500)
    await until(lambda: _is_past(rig), "a millisecond has passed")
    deleting = gate(rig, "delete_group")
    ending = asyncio.ensure_future(end(rig))
    await deleting.reached.wait()

    early = FrameConsumer(rig.url, "g")
    await early.connect()
    await early.closed.wait()
    assert early.error is not None
    assert (early.error.error_code, early.error.retriable) == (RebalanceInProgress.code, True)
    deleting.let_through.set()
    await ending
    consumer = await joined(rig)

    assert ("orders", 0, None, None) in consumer.starts[-1].offsets
    assert await committed(rig) == await _of_topic(zk_session) == {}
    (found,) = await GroupNodes(zk_session).load()
    assert found.record.members.keys() == {consumer.member}
    await consumer.drop()
    await early.drop()


async def test_a_group_is_deleted_as_soon_as_its_last_member_has_left(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    """The rebalance that records the empty group ends first; nobody is told to stop members."""
    consumer = await joined(rig)
    recording = gate(rig, "record")
    leave = f"/v1/groups/g/members/{consumer.member}/leave"
    await rig.http.post(leave, json={"secret": consumer.secret})
    await recording.reached.wait()
    ending = asyncio.create_task(rig.http.delete("/v1/groups/g"))
    await asyncio.wait({ending}, timeout=0.2)  # it has arrived, and waits

    assert not ending.done()
    recording.let_through.set()
    assert (await ending).status_code == httpx.codes.OK
    assert await GroupNodes(zk_session).load() == []


async def evict(rig: CoordinatorRig, consumer: FrameConsumer) -> None:
    """Evict the last member of the group; it may go on reading until its lease has run out."""
    answer = await rig.http.delete(f"/v1/groups/g/members/{consumer.member}")
    assert answer.status_code == httpx.codes.OK
    assert (await rig.http.get("/v1/groups/g")).json()["members"] == []


async def test_a_group_whose_last_member_was_evicted_is_deleted_once_that_has_stopped(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    """A new group of the name would give its partitions a second reader."""
    await evict(rig, await joined(rig))
    evicted = active(rig).groups["g"].group.pending_evictions
    assert evicted
    assert (await rig.http.delete("/v1/groups/g")).status_code == httpx.codes.OK
    assert not evicted
    assert await GroupNodes(zk_session).load() == []


@pytest.mark.parametrize("what", ["reset", "delete"])
async def test_offsets_change_once_an_evicted_member_has_stopped(
    rig: CoordinatorRig, what: str
) -> None:
    rig.brokers.ends = {P: Ends(0, 9)}
    await evict(rig, await joined(rig))
    refused = (await commit(rig, 4)).json()
    assert (refused["error_code"], refused["retriable"]) == (RebalanceInProgress.code, True)
    one = [{"topic": "orders", "partition": 0, "offset": 5}]
    answer = (
        await rig.http.post(f"{OFFSETS}/reset", json={"to": "offsets", "offsets": one})
        if what == "reset"
        else await rig.http.delete(OFFSETS)
    )
    assert answer.status_code == httpx.codes.OK
    assert not active(rig).groups["g"].group.pending_evictions
    assert await committed(rig) == ({0: 5} if what == "reset" else {})


async def test_a_deletion_gives_up_on_former_members_that_take_too_long(
    rig: CoordinatorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline_coordinator.runtime.coordinator._SETTLE_S", 0.0)
    await evict(rig, await joined(rig))
    refused = (await rig.http.delete("/v1/groups/g")).json()
    assert (refused["error_code"], refused["retriable"]) == (RebalanceInProgress.code, True)
    assert "g" in active(rig).groups


async def test_a_deletion_that_waits_is_refused_when_the_term_ends(rig: CoordinatorRig) -> None:
    await evict(rig, await joined(rig))
    ending = asyncio.create_task(rig.http.delete("/v1/groups/g"))
    await asyncio.wait({ending}, timeout=0.2)  # it has arrived, and waits
    assert not ending.done()
    await rig.resign()
    assert (await ending).json()["error_code"] == NotCoordinator.code


def _is_past(rig: CoordinatorRig) -> bool:
    offsets = active(rig).groups["g"].committer.offsets.values()
    return active(rig).context.clock.wall_ms() > max(one.time_ms for one in offsets)


async def _of_topic(session: ZkSession) -> dict[int, int]:
    return {one.partition: offset for one, offset in (await stored(session)).items()}


async def test_defect_06_commits_and_resets_wait_for_the_end_of_their_group(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    rig.brokers.ends = {P: Ends(0, 9)}
    await commit(rig, 500)
    deleting = gate(rig, "delete_group")
    ending = asyncio.create_task(rig.http.delete("/v1/groups/g"))
    await deleting.reached.wait()

    one = [{"topic": "orders", "partition": 0, "offset": 5}]
    reset = await rig.http.post(f"{OFFSETS}/reset", json={"to": "offsets", "offsets": one})
    refusals = [
        await commit(rig, 5),
        reset,
        await rig.http.delete(OFFSETS),
        await rig.http.delete("/v1/groups/g"),
    ]
    deleting.let_through.set()
    await ending

    assert {refusal.json()["error_code"] for refusal in refusals} == {RebalanceInProgress.code}
    assert {refusal.json()["outcome"] for refusal in refusals} == {"refused"}
    assert await GroupNodes(zk_session).load() == []
    await commit(rig, 5)
    assert await committed(rig) == await _of_topic(zk_session) == {0: 5}


async def test_defect_06_a_deletion_that_was_cut_off_is_finished(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    await commit(rig, 500)
    deleting = gate(rig, "delete_group")
    deleting.let_through.set()
    deleting.failures.append(ConnectionLoss())

    answer = await rig.http.delete("/v1/groups/g")

    assert answer.json()["outcome"] == "unknown"
    await until(lambda: "g" not in active(rig).groups, "the deletion is finished")
    assert await GroupNodes(zk_session).load() == []
    consumer = await joined(rig)
    assert ("orders", 0, None, None) in consumer.starts[-1].offsets
    await consumer.drop()


async def test_defect_06_a_first_commit_and_a_deletion_leave_the_same_in_memory_and_zookeeper(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    recording = gate(rig, "record")
    committing = asyncio.create_task(commit(rig, 5))
    await recording.reached.wait()  # the group exists, and is being recorded
    ending = asyncio.create_task(rig.http.delete("/v1/groups/g"))
    await until(lambda: "g" in active(rig).groups, "the group is known")
    await asyncio.sleep(0)
    recording.let_through.set()
    await asyncio.gather(committing, ending)

    in_memory = await committed(rig)
    assert in_memory == await _of_topic(zk_session)
    assert bool(active(rig).groups) == bool(await GroupNodes(zk_session).load())
