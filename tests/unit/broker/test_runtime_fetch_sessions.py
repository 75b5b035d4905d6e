"""How long a leader remembers where a follower stood."""

from __future__ import annotations

from pathlib import Path

from leadline_broker.domain.replica import Replica
from leadline_broker.runtime.fetch_sessions import FetchSessions
from leadline_broker.runtime.partition import Partition
from leadline_broker.runtime.topic_settings import TopicSettings
from leadline_common import rpc
from leadline_common.settings import BrokerSettings
from tests.unit.broker.log_support import open_log
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID

HOUR_MS = 3_600_000


class Hands:
    """A clock that is moved by hand."""

    now = 0

    def monotonic_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now


def led(root: Path, number: int) -> Partition:
    """Return a partition that this broker, 1, leads."""
    root.joinpath(str(number)).mkdir()
    log = open_log(root / str(number))
    replica = Replica(broker_id=1, topic_id=TOPIC_ID, partition=number, log=log)
    replica.on_leader_and_isr(rpc.PartitionRow(number, 1, 0, (1, 2), (1, 2), 0), 0)
    settings = TopicSettings(BrokerSettings(broker_id=1, log_dir=str(root))).of({})
    return Partition(TOPIC, TOPIC_ID, number, log, replica, settings)


def opening(nonce: int, *partitions: int) -> rpc.ReplicaFetchRequest:
    """Return what follower 2 says first in a session."""
    rows = [rpc.FetchRow(number, 0, 0, -1) for number in partitions]
    return rpc.ReplicaFetchRequest(
        broker_id=2,
        incarnation=1,
        session=nonce,
        nonce=nonce,
        wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        topics=[rpc.FetchTopic(TOPIC_ID, rows)],
        forgotten=[],
    )


async def test_a_session_that_was_left_behind_is_closed_in_time(tmp_path: Path) -> None:
    """The follower left it for a new one and no longer follows one of its partitions."""
    partitions = {(TOPIC_ID, number): led(tmp_path, number) for number in (0, 1)}
    clock = Hands()
    sessions = FetchSessions(find=partitions.get, carry_out=lambda *_: None, clock=clock)
    await sessions.fetch(opening(1, 0, 1), incarnation=1)
    await sessions.fetch(opening(2, 0), incarnation=1)
    assert len(sessions) == 2

    clock.now = HOUR_MS
    await sessions.fetch(opening(3, 0), incarnation=1)

    assert len(sessions) == 1
    assert partitions[TOPIC_ID, 1].subscribers is None
