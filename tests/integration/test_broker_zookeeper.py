"""Registration and ISR writes against a real ZooKeeper (rules R1, R6, R7, R9)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from leadline_broker.adapters.directory_nodes import directories_path
from leadline_broker.adapters.zookeeper import ZkBrokerStore
from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.state import Addresses, Directories, PublishedState
from leadline_common import znodes
from leadline_common.cluster_id import UnreadableNode
from leadline_common.versions import NEWEST_PROTOCOL, IncompatibleRelease, current_release
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import PartitionState, StateChange, TopicAssignment
from tests.support.manual_clock import ManualClock
from tests.support.services.zookeeper import SESSION_TIMEOUT_MS, register_newer_broker, until

NAME = ("t", "id-1", 0)
URLS = Addresses("http://127.0.0.1:1", "https://127.0.0.1:2")
DISK = Directories("disk", {})


class Notifications:
    """Counts the notifications of a store to its owner."""

    def __init__(self) -> None:
        self.lost = 0
        self.hints = 0

    def on_lost(self) -> None:
        self.lost += 1

    def on_hint(self) -> None:
        self.hints += 1


@asynccontextmanager
async def store_of(
    broker_id: int, hosts: str, notified: Notifications | None = None
) -> AsyncIterator[ZkBrokerStore]:
    notified = notified or Notifications()
    store = ZkBrokerStore(broker_id, hosts, SESSION_TIMEOUT_MS, ManualClock())
    await store.connect(notified.on_lost, notified.on_hint)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def zk(zk_session: ZkSession) -> ZkSession:
    """A session on a tree with one topic whose partition 0 is led by broker 1."""
    for path in znodes.PERSISTENT_PATHS:
        await zk_session.ensure_path(path)
    assignment = TopicAssignment("id-1", {0: (1, 2, 3)})
    await zk_session.create(znodes.topic_path("t"), znodes.encode_topic(assignment))
    await zk_session.ensure_path(znodes.partition_path("t", 0))
    state = PartitionState(1, 5, (1, 2, 3), 7, extra={"note": "kept"})
    await zk_session.create(znodes.state_path("t", 0), znodes.encode_state(state))
    return zk_session


def proposal(
    *isr: int, version: int = 0, epoch: int = 5, joiners: tuple[tuple[int, int], ...] = ()
) -> IsrProposal:
    return IsrProposal(1, epoch, isr, (), version, joiners, "lagging")


async def test_each_registration_is_a_new_incarnation(zk: ZkSession, zk_chroot: str) -> None:
    async with store_of(1, zk_chroot) as store:
        first = await store.register(URLS, "rack", {}, DISK)
    assert await zk.exists(znodes.broker_id_path(1)) is None
    async with store_of(1, zk_chroot) as store:
        second = await store.register(URLS, None, {}, DISK)
        data, _ = await zk.get(znodes.broker_id_path(1))

    assert second.incarnation == first.incarnation + 1
    assert znodes.decode_broker(data) == second


async def test_a_broker_of_a_release_that_cannot_speak_with_another_is_not_registered(
    zk: ZkSession, zk_chroot: str
) -> None:
    peer = znodes.BrokerRegistration(2, "h", 1, "http://h:1", None, 1)
    newer = msgspec.structs.replace(peer, release="9.0.0", oldest_protocol=8, newest_protocol=9)
    await zk.create(znodes.broker_id_path(2), znodes.encode_value(newer))
    async with store_of(1, zk_chroot) as store:
        with pytest.raises(IncompatibleRelease, match=r"broker 2 \(release 9.0.0\) speaks 8 to 9"):
            await store.register(URLS, None, {}, DISK)
        assert await zk.exists(znodes.broker_id_path(1)) is None
        # One of an older release, which names no version, is no obstacle.
        old = b'{"version":1,"id":2,"host":"h","port":1,"url":"http://h:1","rack":null'
        await zk.set(znodes.broker_id_path(2), old + b',"incarnation":1}', ANY_VERSION)
        registered = await store.register(URLS, None, {}, DISK)
    assert (registered.release, registered.newest_protocol) == (current_release(), NEWEST_PROTOCOL)


class Overtaken(ZkBrokerStore):
    """A store that a newer release overtakes: it registers after this one has looked."""

    def __init__(self, hosts: str, newer: ZkSession) -> None:
        super().__init__(1, hosts, SESSION_TIMEOUT_MS, ManualClock())
        self._newer = newer

    async def _check_versions(self, session: ZkSession) -> None:
        await super()._check_versions(session)
        if await self._newer.exists(znodes.broker_id_path(2)) is None:
            await register_newer_broker(self._newer)


async def test_a_release_that_registers_at_the_same_time_is_noticed(
    zk: ZkSession, zk_chroot: str
) -> None:
    store, notified = Overtaken(zk_chroot, zk), Notifications()
    await store.connect(notified.on_lost, notified.on_hint)
    try:
        with pytest.raises(IncompatibleRelease, match=r"broker 2 \(release 9.0.0\) speaks 8 to 9"):
            await store.register(URLS, None, {}, DISK)
    finally:
        await store.close()
    assert await zk.exists(znodes.broker_id_path(1)) is None


async def test_r17_a_directory_has_the_highest_version_that_was_written(
    zk: ZkSession, zk_chroot: str
) -> None:
    async with store_of(1, zk_chroot) as store:
        assert await store.directory_version("disk") == 0
        for version in (4, 7, 5):
            await store.raise_directory_version("disk", version)
        await store.raise_directory_version("other", 2)

        assert await store.directory_version("disk") == 7
        assert await store.directory_version("other") == 2
    async with store_of(2, zk_chroot) as another:
        assert await another.directory_version("disk") == 0
    assert await zk.get_children(znodes.BROKER_DIRECTORIES) == ["1"]


async def test_r17_versions_keep_what_a_newer_release_has_written(
    zk: ZkSession, zk_chroot: str
) -> None:
    path = directories_path(1)
    await zk.create(path, b'{"version":1,"versions":{"disk":3},"later":true}')
    async with store_of(1, zk_chroot) as store:
        await store.raise_directory_version("disk", 4)
    assert msgspec.json.decode((await zk.get(path))[0]) == {
        "version": 1,
        "versions": {"disk": 4},
        "later": True,
    }


@pytest.mark.parametrize("data", [b"garbage", b'{"version":1,"versions":{"disk":-1}}'])
async def test_r17_unreadable_versions_are_no_versions(
    zk: ZkSession, zk_chroot: str, data: bytes
) -> None:
    """Whether the directory is an older copy is not known, until somebody repairs the node."""
    await zk.create(directories_path(1), data)
    async with store_of(1, zk_chroot) as store:
        with pytest.raises(UnreadableNode, match="must be repaired, or emptied"):
            await store.directory_version("disk")
        with pytest.raises(UnreadableNode):
            await store.raise_directory_version("disk", 1)
        assert (await zk.get(directories_path(1)))[0] == data
        await zk.set(directories_path(1), b"", ANY_VERSION)
        assert await store.directory_version("disk") == 0
        await store.raise_directory_version("disk", 1)


async def test_r17_a_cluster_of_an_older_release_has_no_versions(
    zk: ZkSession, zk_chroot: str
) -> None:
    """Its controller does not make the parent, and a broker may not."""
    await zk.delete(znodes.BROKER_DIRECTORIES, ANY_VERSION)
    async with store_of(1, zk_chroot) as store:
        await store.raise_directory_version("disk", 1)
        assert await store.directory_version("disk") == 0
    assert await zk.exists(znodes.BROKER_DIRECTORIES) is None


async def test_defect_01_a_directory_keeps_its_epoch_and_another_one_gets_the_next(
    zk_chroot: str,
) -> None:
    epochs = []
    for directory in ("disk", "disk", "new disk", "disk", "third"):
        async with store_of(1, zk_chroot) as store:
            known = Directories(directory, {})
            epochs.append(await store.register(URLS, None, {}, known))

    assert [one.directory_epoch for one in epochs] == [1, 1, 2, 1, 3]
    assert [one.incarnation for one in epochs] == [1, 2, 3, 4, 5]


async def test_defect_01_a_lost_log_is_registered_with_an_epoch_of_its_own(
    zk: ZkSession, zk_chroot: str
) -> None:
    lost = Directories("disk", {("id-1", 0): "lost", ("id-2", 3): "lost"})
    async with store_of(1, zk_chroot) as store:
        await store.register(URLS, None, {}, lost)
        data, _ = await zk.get(znodes.broker_id_path(1))

    broker = znodes.decode_broker(data)
    assert [broker.epoch_of(*key) for key in lost.of_replicas] == [2, 2]
    assert [broker.epoch_of("id-1", 1), broker.epoch_of("id-2", 0)] == [1, 1]


async def test_a_registration_shows_what_the_broker_was_told(zk: ZkSession, zk_chroot: str) -> None:
    async with store_of(1, zk_chroot) as store:
        await store.register(URLS, None, {"log.dir": "/logs"}, DISK)

        data, _ = await zk.get(znodes.broker_id_path(1))

    assert znodes.decode_broker(data).settings == {"log.dir": "/logs"}


async def test_what_a_dead_process_left_behind_is_replaced_at_once(
    zk: ZkSession, zk_chroot: str
) -> None:
    notified = Notifications()
    async with store_of(1, zk_chroot, notified) as left_behind:
        first = await left_behind.register(Addresses("http://127.0.0.1:1"), None, {}, DISK)
        assert await left_behind.registration() == "ours"
        async with store_of(1, zk_chroot) as store:
            second = await store.register(Addresses("http://127.0.0.1:2"), None, {}, DISK)

            data, _ = await zk.get(znodes.broker_id_path(1))
            assert second.incarnation == first.incarnation + 1
            assert (znodes.decode_broker(data), second.url) == (second, "http://127.0.0.1:2")
            await until(lambda: notified.hints > 0, "the other process is notified")
            assert await left_behind.registration() == "another's"
            assert await store.registration() == "ours"


async def test_a_shrink_keeps_all_else_and_leaves_an_audit_entry(
    zk: ZkSession, zk_chroot: str
) -> None:
    async with store_of(1, zk_chroot) as store:
        await store.register(URLS, None, {}, DISK)

        outcome = await store.write_isrs([(NAME, proposal(1, 2))])

        assert outcome == [(IsrWriteResult.COMMITTED, 1)]
    data, stat = await zk.get(znodes.state_path("t", 0))
    assert stat.version == 1
    assert znodes.decode_state(data) == PartitionState(1, 5, (1, 2), 7, extra={"note": "kept"})
    (entry,) = await zk.get_children(znodes.AUDIT)
    audit = znodes.decode_audit((await zk.get(f"{znodes.AUDIT}/{entry}"))[0])
    assert (audit.kind, audit.actor, audit.reason) == ("isr_change", "broker 1", "lagging")
    assert audit.changes == (StateChange("t", 0, "lagging", (1, 5, (1, 2, 3)), (1, 5, (1, 2)), 1),)


@pytest.mark.parametrize(
    "stale",
    [proposal(1, version=3), proposal(1, epoch=4)],
    ids=["version", "epoch"],
)
async def test_a_write_from_an_old_view_changes_nothing(
    zk: ZkSession, zk_chroot: str, stale: IsrProposal
) -> None:
    async with store_of(1, zk_chroot) as store:
        await store.register(URLS, None, {}, DISK)

        assert await store.write_isrs([(NAME, stale)]) == [(IsrWriteResult.CONFLICT, -1)]

    assert (await zk.get(znodes.state_path("t", 0)))[1].version == 0


async def test_a_recreated_topic_is_not_written_for_the_old_one(
    zk: ZkSession, zk_chroot: str
) -> None:
    async with store_of(1, zk_chroot) as store:
        await store.register(URLS, None, {}, DISK)
        old = ("t", "another-id", 0)

        assert await store.write_isrs([(old, proposal(1))]) == [(IsrWriteResult.CONFLICT, -1)]
        assert await store.read_states([old]) == {old: None}


async def test_a_succeeded_incarnation_writes_nothing(zk: ZkSession, zk_chroot: str) -> None:
    async with store_of(1, zk_chroot) as zombie, store_of(1, zk_chroot) as store:
        await zombie.register(Addresses("http://127.0.0.1:1"), None, {}, DISK)
        await store.register(URLS, None, {}, DISK)

        assert await zombie.write_isrs([(NAME, proposal(1))]) == [(IsrWriteResult.CONFLICT, -1)]
        assert await store.write_isrs([(NAME, proposal(1))]) == [(IsrWriteResult.COMMITTED, 1)]


async def test_a_joiner_must_be_live_in_the_counted_incarnation(
    zk: ZkSession, zk_chroot: str
) -> None:
    refused = [(IsrWriteResult.JOINER_REFUSED, -1)]
    async with store_of(1, zk_chroot) as store:
        await store.register(URLS, None, {}, DISK)
        async with store_of(2, zk_chroot) as follower:
            counted = (await follower.register(URLS, None, {}, DISK)).incarnation
            grown = proposal(1, 2, joiners=((2, counted),))
            other = proposal(1, 2, joiners=((2, counted + 1),))
            assert await store.write_isrs([(NAME, other)]) == refused
        assert await store.write_isrs([(NAME, grown)]) == refused
        async with store_of(2, zk_chroot) as follower:
            counted = (await follower.register(URLS, None, {}, DISK)).incarnation
            assert await store.write_isrs([(NAME, grown)]) == refused
            grown = proposal(1, 2, joiners=((2, counted),))
            assert await store.write_isrs([(NAME, grown)]) == [(IsrWriteResult.COMMITTED, 1)]


async def test_a_refusal_of_one_change_keeps_no_other_from_being_written(
    zk: ZkSession, zk_chroot: str
) -> None:
    """They are in one transaction, of which some are refused in turn.

    The state of partition 0 has fields that nobody knows, so that its change is alone.
    """
    names = [("t", "id-1", number) for number in range(5)]
    assignment = TopicAssignment("id-1", dict.fromkeys(range(5), (1, 2, 3)))
    await zk.set(znodes.topic_path("t"), znodes.encode_topic(assignment), ANY_VERSION)
    for _, _, number in names[1:]:
        await zk.create(znodes.partition_path("t", number))
        state = znodes.encode_state(PartitionState(1, 5, (1, 2, 3), 7))
        await zk.create(znodes.state_path("t", number), state)
    async with store_of(1, zk_chroot) as store:
        await store.register(URLS, None, {}, DISK)
        gone = proposal(1, 2, 3, joiners=((3, 9),))
        changes = [proposal(1, 2), gone, proposal(1, version=3), proposal(1, 3), proposal(1)]

        outcomes = await store.write_isrs(list(zip(names, changes, strict=True)))

    assert outcomes == [
        (IsrWriteResult.COMMITTED, 1),
        (IsrWriteResult.JOINER_REFUSED, -1),
        (IsrWriteResult.CONFLICT, -1),
        (IsrWriteResult.COMMITTED, 1),
        (IsrWriteResult.COMMITTED, 1),
    ]
    written = []
    for entry in await zk.get_children(znodes.AUDIT):
        audit = znodes.decode_audit((await zk.get(f"{znodes.AUDIT}/{entry}"))[0])
        written.append([(row.partition, row.after[2]) for row in audit.changes])
    assert sorted(written) == [[(0, (1, 2))], [(3, (1, 3)), (4, (1,))]]


async def test_a_joiner_must_be_assigned(zk: ZkSession, zk_chroot: str) -> None:
    """It was removed by a reassignment, which the leader has not heard of (rule R13)."""
    async with store_of(1, zk_chroot) as store, store_of(4, zk_chroot) as removed:
        await store.register(URLS, None, {}, DISK)
        counted = (await removed.register(URLS, None, {}, DISK)).incarnation
        grown = proposal(1, 2, 3, 4, joiners=((4, counted),))

        assert await store.write_isrs([(NAME, grown)]) == [(IsrWriteResult.CONFLICT, -1)]

        assignment = TopicAssignment("id-1", {0: (1, 2, 3, 4)}, adding={0: (4,)})
        await zk.set(znodes.topic_path("t"), znodes.encode_topic(assignment), 0)
        assert await store.write_isrs([(NAME, grown)]) == [(IsrWriteResult.COMMITTED, 1)]


async def test_settings_of_broker_and_cluster_are_read_and_watched(
    zk: ZkSession, zk_chroot: str
) -> None:
    """The broker's own node is made when something is first set for it."""
    notified = Notifications()
    own, cluster = (znodes.encode_configs({"open.files.max": n}) for n in ("20", "30"))
    async with store_of(1, zk_chroot) as store:
        assert await store.configs(notified.on_hint) == (None, b"")

        await zk.create(znodes.broker_config_path(1), own)
        await until(lambda: notified.hints == 1, "the new node is noticed")
        assert await store.configs(notified.on_hint) == (own, b"")

        await zk.set(znodes.CONFIG_CLUSTER, cluster, 0)
        await until(lambda: notified.hints == 2, "the cluster's is noticed")
        assert await store.configs(notified.on_hint) == (own, cluster)


async def test_a_topic_is_read_once_for_all_of_its_partitions(
    zk: ZkSession, zk_chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node names all of them: reading it for each would cost the square of their number."""
    read: list[str] = []
    get_many = ZkSession.get_many

    async def noting(session: ZkSession, paths: Sequence[str], **options: Any) -> Any:
        read.extend(paths)
        return await get_many(session, paths, **options)

    monkeypatch.setattr(ZkSession, "get_many", noting)
    names = [("t", "id-1", partition) for partition in range(50)]
    async with store_of(1, zk_chroot) as store:
        states = await store.read_states(names)
        outcomes = await store.write_isrs([(name, proposal(1, 2, 3)) for name in names])
    assert [name for name, state in states.items() if state] == [NAME]
    assert {result for result, _ in outcomes[1:]} == {IsrWriteResult.CONFLICT}
    assert read.count(znodes.topic_path("t")) == 2
    assert len(read) == 2 * (1 + len(names))


async def test_states_are_read_as_published(zk: ZkSession, zk_chroot: str) -> None:
    async with store_of(1, zk_chroot) as store:
        missing = ("no", "id", 0)
        states = await store.read_states([NAME, missing])

    assert states == {NAME: PublishedState(1, 5, (1, 2, 3), (), 0), missing: None}


@pytest.mark.parametrize("path", [znodes.topic_path("t"), znodes.state_path("t", 0)])
async def test_what_a_person_has_misspelled_is_neither_obeyed_nor_taken_for_gone(
    zk: ZkSession, zk_chroot: str, path: str
) -> None:
    """Nor does it end the broker, or keep other partitions waiting."""
    data, _ = await zk.get(path)
    other = ("u", "id-2", 0)
    await zk.create(znodes.topic_path("u"), znodes.encode_topic(TopicAssignment("id-2", {0: (1,)})))
    await zk.ensure_path(znodes.partition_path("u", 0))
    await zk.create(znodes.state_path("u", 0), znodes.encode_state(PartitionState(1, 5, (1,), 7)))
    async with store_of(1, zk_chroot) as store:
        await zk.set(path, b"not JSON", ANY_VERSION)
        assert await store.read_states([NAME, other]) == {other: PublishedState(1, 5, (1,), (), 0)}
        assert await store.write_isrs([(NAME, proposal(1))]) == [(IsrWriteResult.CONFLICT, -1)]
        await zk.set(path, data, ANY_VERSION)
        assert (await store.read_states([NAME])).keys() == {NAME}


async def test_blocks_of_producer_ids_do_not_overlap(zk: ZkSession, zk_chroot: str) -> None:
    async with store_of(1, zk_chroot) as one, store_of(2, zk_chroot) as two:
        blocks = [await store.claim_producer_ids(1000) for store in (one, two, one)]

    assert blocks == [0, 1000, 2000]


async def test_the_controller_is_followed_by_hints(zk: ZkSession, zk_chroot: str) -> None:
    notified = Notifications()
    async with store_of(1, zk_chroot, notified) as store:
        assert await store.controller() is None
        value = znodes.encode_value(znodes.ControllerRegistration(3, "http://c", 0))
        await zk.create(znodes.CONTROLLER, value, ephemeral=True)
        await until(lambda: notified.hints > 0, "a hint comes")

        found = await store.controller()

    assert found is not None
    assert (found.id, found.url) == (3, "http://c")


async def test_the_lease_ends_with_the_session(zk: ZkSession, zk_chroot: str) -> None:
    async with store_of(1, zk_chroot) as store:
        assert store.lease_valid()
        assert store.lease_left_ms() > 0
        await store.close()
        assert not store.lease_valid()
