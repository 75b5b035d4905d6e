"""A follower whose leader is a list of answers: what it asks for next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import cast

import msgspec

from leadline_broker.adapters.log.errors import DiskFull
from leadline_broker.domain.effects import Effect
from leadline_broker.domain.replica import Replica
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.fetchers import FetchContext, ReplicaFetcher
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.throttle import MovingThrottle
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_client.batch_header import parse_headers
from leadline_client.batches import stamp
from leadline_common import rpc
from leadline_common.rpc import NO_ERROR
from leadline_common.settings import BrokerSettings
from tests.support.manual_clock import ManualClock
from tests.support.services.zookeeper import until
from tests.unit.broker.log_support import open_log
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, batch

LEADER, FOLLOWER = 1, 2
LONGER_THAN_A_DELAY_MS = 10_000


@dataclass
class Leader:
    """Gives these answers, one after another, and then none; time passes before each."""

    clock: ManualClock
    answers: list[tuple[int, list[rpc.FetchedRow]]]
    requests: list[rpc.ReplicaFetchRequest] = field(default_factory=list)

    async def fetch(
        self, _: str, request: rpc.ReplicaFetchRequest, __: float
    ) -> rpc.ReplicaFetchResponse:
        self.requests.append(request)
        if not self.answers:
            await asyncio.Event().wait()
        passed_ms, rows = self.answers.pop(0)
        self.clock.advance(passed_ms)
        topics = [rpc.FetchedTopic(TOPIC_ID, rows)]
        return rpc.ReplicaFetchResponse(request.nonce, 1, NO_ERROR, topics)

    def positions(self) -> list[list[int]]:
        """Return the offsets that the follower has stated in each of its requests."""
        return [
            [row.fetch_offset for topic in request.topics for row in topic.partitions]
            for request in self.requests
        ]


def followed(root: Path) -> Partition:
    log = open_log(root)
    replica = Replica(broker_id=FOLLOWER, topic_id=TOPIC_ID, partition=0, log=log)
    row = rpc.PartitionRow(0, LEADER, 0, (LEADER,), (LEADER, FOLLOWER), 0, ())
    replica.on_leader_and_isr(row, 0)
    settings = TopicSettings(BrokerSettings(broker_id=FOLLOWER, log_dir=str(root))).of({})
    return Partition(TOPIC, TOPIC_ID, 0, log, replica, settings)


def refuse(_: Partition, effects: Sequence[Effect]) -> None:
    """Have no space for records."""
    if effects:
        raise DiskFull("no space left")


def fetcher_of(root: Path, leader: Leader) -> ReplicaFetcher:
    state = BrokerState(FOLLOWER, lambda: True)
    state.incarnation = 1
    state.update_addresses([rpc.BrokerRow(LEADER, "http://leader", None, 1)])
    flusher = GroupFlusher(
        on_durable=lambda _: None, on_failed=lambda _: None, on_group=lambda _: None
    )
    context = FetchContext(
        broker_state=state,
        peers=cast("Peers", leader),
        flusher=flusher,
        moving_flusher=flusher,
        execute=refuse,
        clock=leader.clock,
        random=Random(1),
        settings=BrokerSettings(broker_id=FOLLOWER, log_dir=str(root)),
        nonces=count(1),
        throttle=cast("MovingThrottle", None),
        acks=(),
    )
    return ReplicaFetcher(LEADER, context)


async def test_defect_39_what_was_refused_is_fetched_again_though_nothing_new_is_appended(
    tmp_path: Path,
) -> None:
    """The leader tells a new high watermark meanwhile; it has sent the records, and waits."""
    row = rpc.FetchedRow(0, 0, 0, -1, NO_ERROR, 0, 0)
    records = batch("a")
    stamp(records, next(parse_headers(records)), 0, 0)
    answers = [
        (0, [msgspec.structs.replace(row, records=bytes(records))]),
        (1, [msgspec.structs.replace(row, high_watermark=1)]),
        (LONGER_THAN_A_DELAY_MS, []),
    ]
    leader = Leader(ManualClock(1_000_000), answers)
    fetcher = fetcher_of(tmp_path, leader)
    fetcher.add(followed(tmp_path))

    running = asyncio.create_task(fetcher.run())
    await until(lambda: len(leader.requests) == 4, "the leader has answered")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

    assert leader.positions() == [[0], [], [], [0]]
