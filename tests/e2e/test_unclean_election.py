"""S27: every in-sync replica of a partition is down, and a stale one is up (rule R14)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from leadline_client.errors import LogTruncated, NoController
from leadline_client.payloads import OutgoingRecord
from leadline_client.readers import AsyncPartitionReader
from leadline_client.wire import NewTopic, Record, TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.data_loss import DataLossChecker
from leadline_spark.read.fetching import ReadSettings, read_range
from leadline_spark.read.offset_fetcher import OffsetFetcher
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset
from leadline_spark.read.planning import Range
from leadline_spark.read.subscription import SourceSubscription
from tests.support.checks.history import AnomalyKind
from tests.support.faults.faults import expired, kill
from tests.support.faults.scenario import Scenario, loaded, running_cluster
from tests.support.services.cluster import wait_until

IN_SYNC, STALE = ("broker-1", "broker-2"), "broker-3"
ASSIGNMENT = {0: (1, 2, 3), 1: (1, 2, 3)}
RECONCILIATIONS_S = 3.0
"""Three times what these clusters set as reconcile.interval.ms."""


@asynccontextmanager
async def only_the_stale_replica_is_up(
    configs: Mapping[str, str] | None = None,
    before: Callable[[Scenario], Awaitable[None]] | None = None,
) -> AsyncIterator[tuple[Scenario, set[str]]]:
    """Yield the scenario, and what was acknowledged after the stale replica was killed.

    `before` is called when all of that is acknowledged, while the in-sync replicas are still up.
    """
    topic = NewTopic("orders", replica_assignment=ASSIGNMENT, configs=configs or {})
    async with running_cluster() as cluster, loaded(cluster, topic) as running:
        on_all_three = set(running.load.history.acked)
        await kill(running, STALE)
        await expired(running, STALE)
        await running.load.progress(records=500)
        await running.load.stop()
        if before is not None:
            await before(running)
        for name in IN_SYNC:
            await kill(running, name)
        for name in IN_SYNC:
            await expired(running, name)
        cluster.restart(STALE)

        async def is_up() -> bool:
            return 3 in (await running.view()).brokers

        await wait_until(is_up, f"{STALE} is registered")
        yield running, {str(value) for value in running.load.history.acked.keys() - on_all_three}


async def leaders_reported(running: Scenario, name: str) -> list[int]:
    """Return the leaders that a service reports to clients."""
    answer = await running.cluster.get(name, "/v1/metadata")
    if answer.status_code == NoController("").status:
        return []  # it has just started, and has no metadata yet
    document = answer.raise_for_status().json()
    return [row[1] for row in document["topics"][running.topic]["partitions"]]


async def wait_until_reported(running: Scenario, leaders: list[int]) -> None:
    """Wait until the controller and the live broker report these leaders to clients."""

    async def reported() -> bool:
        return all(
            [await leaders_reported(running, name) == leaders for name in ("controller-1", STALE)]
        )

    await wait_until(reported, f"the leaders are {leaders}")


async def heal_with_losses(running: Scenario, may_be_lost: set[str]) -> None:
    """Bring all brokers back; nothing but `may_be_lost` may be missing, and all must agree."""
    await running.settle()
    findings = await running.examine()
    lost = {str(one.value) for one in findings.anomalies if one.kind is AnomalyKind.LOST}
    others = [str(one) for one in findings.anomalies if one.kind is not AnomalyKind.LOST]
    assert not [*findings.problems, *others]
    assert lost, "void: the replica was not stale"
    assert lost <= may_be_lost
    running.assert_loaded()


def check_that_spark_detects_the_loss(running: Scenario, partition: int) -> None:
    """Continue after the last acknowledged record as a stream, and read up to it as a task."""
    last = max(
        (ack for ack in running.load.acks if ack.partition == partition),
        key=lambda ack: ack.base_offset,
    )
    end, epoch = last.base_offset + last.count, last.leader_epoch
    topic_partition = TopicPartition(running.topic, partition)
    connection = Connection((running.cluster.url(STALE),))
    fetcher = OffsetFetcher(
        ClusterClient(connection),
        SourceSubscription(assigned=(topic_partition,)),
        deadline_s=30.0,
    )
    snapshot = fetcher.snapshot()
    stood = SourceOffset(
        {topic_partition: OffsetAndEpoch(end, epoch)},
        {running.topic: snapshot.ids[topic_partition]},
    )
    planned = Range(topic_partition, snapshot.ids[topic_partition], 0, end, epoch)
    with pytest.raises(LeadlineSparkError, match=r"DATA_LOSS.*an election .* cut off") as stream:
        DataLossChecker(fetcher, fail=True).start_offsets(stood, snapshot)
    with pytest.raises(LeadlineSparkError, match=r"DATA_LOSS.*were cut off by an election"):
        list(read_range(connection, planned, None, ReadSettings(("offset",))))
    cut = re.search(r"beyond (\d+)", stream.value.message)
    assert cut is not None
    assert int(cut[1]) == snapshot.offsets[topic_partition].end < end


@pytest.mark.scenario("S27")
async def test_no_in_sync_replica_is_up_then_nobody_leads_and_the_isr_is_kept() -> None:
    async with only_the_stale_replica_is_up() as (running, _):
        await wait_until_reported(running, [-1, -1])
        before = (await running.view()).states
        for state, _version in before.values():
            assert state.leader == -1
            assert state.isr
            assert set(state.isr) <= {1, 2}
        # However often the controller looks, the stale replica is not taken.
        await asyncio.sleep(RECONCILIATIONS_S)
        assert (await running.view()).states == before
        assert await leaders_reported(running, STALE) == [-1, -1]
        for name in IN_SYNC:
            running.cluster.restart(name)
        await running.verify()


@pytest.mark.scenario("S27")
async def test_unclean_election_asked_for_is_audited_with_what_may_be_lost() -> None:
    async with only_the_stale_replica_is_up() as (running, may_be_lost):
        await wait_until_reported(running, [-1, -1])
        await running.cluster.client.elect("unclean", [(running.topic, 0)])
        await wait_until_reported(running, [3, -1])
        snapshot = await running.view()
        assert snapshot.states[running.topic, 0][0].isr == (3,)
        row = snapshot.changes(running.topic, 0)[-1]
        entry = next(one for one in snapshot.audit if row in one.changes)
        assert (row.reason, row.after[0]) == ("unclean", 3)
        assert "may be lost" in entry.reason
        sent = running.load.history.sent
        in_partition_0 = {value for value in may_be_lost if sent[value].partition[1] == 0}
        await heal_with_losses(running, in_partition_0)
        await asyncio.to_thread(check_that_spark_detects_the_loss, running, 0)


@pytest.mark.scenario("S27")
async def test_unclean_election_allowed_by_the_topic_happens_by_itself() -> None:
    allowed = {"unclean.leader.election.enable": "true"}
    async with only_the_stale_replica_is_up(allowed) as (running, may_be_lost):
        await wait_until_reported(running, [3, 3])
        snapshot = await running.view()
        for partition in (0, 1):
            assert snapshot.states[running.topic, partition][0].isr == (3,)
            assert snapshot.changes(running.topic, partition)[-1].reason == "unclean"
        await heal_with_losses(running, may_be_lost)


async def test_defect_02_readers_learn_where_the_log_differs_from_what_they_read() -> None:
    readers: dict[int, AsyncPartitionReader] = {}
    read: dict[int, list[Record]] = {}

    async def read_everything(running: Scenario) -> None:
        for partition in ASSIGNMENT:
            readers[partition] = AsyncPartitionReader(
                running.cluster.client, running.topic, partition
            )
            read[partition] = await read_to_the_end(running, readers[partition])

    async with only_the_stale_replica_is_up(before=read_everything) as (running, may_be_lost):
        await wait_until_reported(running, [-1, -1])
        await running.cluster.client.elect("unclean")
        await wait_until_reported(running, [3, 3])
        await heal_with_losses(running, may_be_lost)
        for partition, reader in readers.items():
            position = reader.position.offset
            await write_beyond(running, partition, position)
            with pytest.raises(LogTruncated) as truncated:
                await reader.read()
            fresh = AsyncPartitionReader(running.cluster.client, running.topic, partition)
            present = [record async for record in fresh.read_to(position)]
            pairs = zip(read[partition], present, strict=True)
            first = next(old.offset for old, new in pairs if old.value != new.value)
            assert truncated.value.position == position
            assert truncated.value.divergence_offset == first


async def read_to_the_end(running: Scenario, reader: AsyncPartitionReader) -> list[Record]:
    client, position = running.cluster.client, reader.position
    end = (await client.offsets(position.topic, position.partition)).high_watermark
    return [record async for record in reader.read_to(end)]


async def write_beyond(running: Scenario, partition: int, offset: int) -> None:
    """Append records until the log is longer than `offset`, so that a fetch there finds some."""
    client = running.cluster.client
    end = (await client.offsets(running.topic, partition)).high_watermark
    for first in range(end, offset + 10, 500):
        values = [OutgoingRecord(f"new {n}".encode()) for n in range(first, first + 500)]
        await client.produce(running.topic, partition, values)


@pytest.mark.slow
async def test_defect_07_what_was_committed_after_a_lowered_minimum_may_be_lost() -> None:
    """Broker 2 leaves below the minimum, so it is eligible; then the minimum is lowered."""
    topic = NewTopic("orders", replica_assignment={0: (1, 2)}, configs={"min.insync.replicas": "2"})
    async with running_cluster() as cluster, loaded(cluster, topic) as running:
        on_both = set(running.load.history.acked)
        await kill(running, "broker-2")
        await expired(running, "broker-2")

        async def eligible() -> tuple[int, ...]:
            return (await running.view()).states[running.topic, 0][0].eligible

        async def is_eligible() -> bool:
            return await eligible() == (2,)

        await wait_until(is_eligible, "broker 2 is eligible")
        lowered = {"set": {"min.insync.replicas": "1"}}
        await cluster.request(
            "PATCH", "controller-1", f"/v1/topics/{running.topic}/configs", json=lowered
        )
        await running.load.progress(records=1_500)
        await running.load.stop()
        may_be_lost = {str(value) for value in running.load.history.acked.keys() - on_both}
        await kill(running, "broker-1")
        await expired(running, "broker-1")
        cluster.restart("broker-2")
        await cluster.until_ready("broker-2")
        await cluster.client.elect("unclean", [(running.topic, 0)])
        snapshot = await running.view()
        row = snapshot.changes(running.topic, 0)[-1]
        entry = next(one for one in snapshot.audit if row in one.changes)
        assert (row.reason, row.after[0]) == ("unclean", 2)
        assert "only brokers [1] hold may be lost" in entry.reason
        await heal_with_losses(running, may_be_lost)
