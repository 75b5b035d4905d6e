"""S27: every in-sync replica of a partition is down, and a stale one is up (rule R14)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from leadline_client.errors import NoController
from leadline_client.wire import NewTopic, TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.data_loss import DataLossChecker
from leadline_spark.read.fetching import ReadSettings, read_range
from leadline_spark.read.offset_fetcher import OffsetFetcher
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset
from leadline_spark.read.planning import Range
from leadline_spark.read.subscription import SourceSubscription
from tests.support.checks.history import AnomalyKind
from tests.support.checks.invariants import examine
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
) -> AsyncIterator[tuple[Scenario, set[str]]]:
    """Yield the scenario, and what was acknowledged after the stale replica was killed."""
    topic = NewTopic("orders", replica_assignment=ASSIGNMENT, configs=configs or {})
    async with running_cluster() as cluster, loaded(cluster, topic) as running:
        on_all_three = set(running.load.history.acked)
        await kill(running, STALE)
        await expired(running, STALE)
        await running.load.progress(records=500)
        await running.load.stop()
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
    findings = await examine(running.cluster, running.load)
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
        in_partition_0 = {
            value for value in may_be_lost if running.load.history.sent[value].partition[1] == 0
        }
        await heal_with_losses(running, in_partition_0)
        await asyncio.to_thread(check_that_spark_detects_the_loss, running, 0)


async def test_unclean_election_allowed_by_the_topic_happens_by_itself() -> None:
    allowed = {"unclean.leader.election.enable": "true"}
    async with only_the_stale_replica_is_up(allowed) as (running, may_be_lost):
        await wait_until_reported(running, [3, 3])
        snapshot = await running.view()
        for partition in (0, 1):
            assert snapshot.states[running.topic, partition][0].isr == (3,)
            assert snapshot.changes(running.topic, partition)[-1].reason == "unclean"
        await heal_with_losses(running, may_be_lost)
