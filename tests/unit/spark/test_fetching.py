"""A task of a read against a broker that loses, moves and cuts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from leadline_client import batches
from leadline_client.batch_header import header_at
from leadline_client.columnar.checksum import crc32c
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import Metadata, TopicPartition
from leadline_spark.cluster.cluster_client import Connection
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.fetching import ReadSettings, read_range
from leadline_spark.read.planning import Range
from leadline_spark.read.replicas import nearest_first
from tests.unit.spark.standin import Asked, Said, StandIn, metadata, refusal, stand_in

PARTITION = TopicPartition("t", 0)
URL_PATH = "/v1/topics/t/partitions/0"


def batch(first: int, count: int, epoch: int = 0) -> bytes:
    records = [OutgoingRecord(b"%d" % n, None, (), 5) for n in range(first, first + count)]
    made = bytearray(batches.encode(records, now_ms=5))
    batches.stamp(made, header_at(made), first, epoch)
    return bytes(made)


@dataclass
class Log:
    """One partition, as its leader serves it: batches by their first offsets."""

    kept: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    epoch: int = 0
    topic_id: str = "id"
    epoch_ends: dict[int, int] = field(default_factory=dict)
    first_epoch: int = 0
    stalls: int = 0
    leads: bool = True

    def add(self, first: int, count: int) -> None:
        self.kept[first] = batch(first, count, self.epoch)
        self.end = max(self.end, first + count)

    def answer(self, asked: Asked) -> Said:
        if "/epochs/" in asked.path:
            epoch = int(asked.path.rsplit("/", 1)[1])
            end = self.epoch_ends.get(epoch, self.end)
            known = epoch if epoch >= self.first_epoch else -1
            return Said({"epoch": known, "end_offset": end, "leader_epoch": self.epoch})
        if asked.path == "/v1/metadata":
            url = self.url if self.leads else None
            rows = [[0, 1 if url else -1, self.epoch, [1], [1]]]
            return metadata({1: self.url}, {"t": (self.topic_id, rows)})
        return self.records(int(asked.params["offset"]))

    def records(self, offset: int) -> Said:
        if not self.start <= offset <= self.end:
            return refusal(416, 41650, log_start_offset=self.start, high_watermark=self.end)
        headers = {
            "X-Leadline-High-Watermark": str(self.end),
            "X-Leadline-Leader-Epoch": str(self.epoch),
            "X-Leadline-Topic-Id": self.topic_id,
        }
        if self.stalls:
            self.stalls -= 1
            return Said(b"", headers=headers)
        behind = [first for first in self.kept if first <= offset]
        ahead = [first for first in self.kept if first > offset]
        held = max(behind, default=None)
        if held is not None and header_at(self.kept[held]).next_offset > offset:
            return Said(self.kept[held], headers=headers)
        return Said(self.kept[min(ahead)] if ahead else b"", headers=headers)

    url: str = ""


@pytest.fixture
def broker() -> Iterator[StandIn]:
    with stand_in() as one:
        yield one


@pytest.fixture
def log(broker: StandIn) -> Log:
    """Offsets 0 to 29, in batches of ten."""
    made = Log(url=broker.url)
    for first in (0, 10, 20):
        made.add(first, 10)
    broker.answer = made.answer
    return made


def read(
    log: Log,
    start: int,
    end: int,
    *,
    end_epoch: int = 0,
    fail: bool = True,
    patience_s: float = 5.0,
) -> list[int]:
    settings = ReadSettings(("offset",), 1, patience_s, fail)
    asked = Range(PARTITION, "id", start, end, end_epoch)
    found = read_range(Connection((log.url,)), asked, log.url, settings)
    return [offset for one in found for offset in one.column(0).to_pylist()]


def test_batches_are_cut_to_the_range(log: Log) -> None:
    assert read(log, 5, 25) == list(range(5, 25))
    assert read(log, 12, 13) == [12]


def test_the_range_ends_where_it_was_planned_though_more_is_there(log: Log) -> None:
    log.add(30, 10)

    assert read(log, 0, 30) == list(range(30))


def test_a_leader_that_is_not_ready_is_waited_for(log: Log) -> None:
    log.stalls = 3

    assert read(log, 0, 30) == list(range(30))


def test_patience_begins_again_with_whatever_came(
    log: Log, broker: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long read outlives any number of short waits, though together they are longer."""
    now = [0.0]
    stalled: list[Asked] = []

    def answer(asked: Asked) -> Said:
        now[0] += 4.0
        if asked.params["offset"] == "20" and not stalled:
            stalled.append(asked)
            log.stalls = 1
        return log.answer(asked)

    broker.answer = answer
    monkeypatch.setattr(
        "leadline_spark.read.fetching.time", SimpleNamespace(monotonic=lambda: now[0])
    )

    assert read(log, 0, 30, patience_s=5.0) == list(range(30))


def test_patience_is_not_used_up_by_whoever_takes_the_records(
    log: Log, broker: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    fetched_ahead = threading.Event()

    def answer(asked: Asked) -> Said:
        said = log.answer(asked)
        if asked.params["offset"] == "10":
            fetched_ahead.set()
        return said

    broker.answer = answer
    monkeypatch.setattr(
        "leadline_spark.read.fetching.time", SimpleNamespace(monotonic=lambda: now[0])
    )
    settings = ReadSettings(("offset",), 1, 5.0)
    found = read_range(Connection((log.url,)), Range(PARTITION, "id", 0, 30, 0), log.url, settings)

    rows = next(found).num_rows
    assert fetched_ahead.wait(10.0)
    now[0] += 60.0
    log.stalls = 1

    assert rows + sum(one.num_rows for one in found) == 30


def test_the_next_batches_are_fetched_while_the_first_are_used(log: Log, broker: StandIn) -> None:
    fetched = {offset: threading.Event() for offset in ("0", "10", "20")}

    def answer(asked: Asked) -> Said:
        fetched[asked.params["offset"]].set()
        return log.answer(asked)

    broker.answer = answer
    settings = ReadSettings(("offset",), 1, 5.0)
    found = read_range(Connection((log.url,)), Range(PARTITION, "id", 0, 30, 0), log.url, settings)

    assert next(found).num_rows == 10
    assert fetched["10"].wait(10.0)
    assert not fetched["20"].is_set(), "no further ahead"
    assert sum(one.num_rows for one in found) == 20


@pytest.mark.parametrize("fail", [True, False])
def test_a_leader_that_does_not_get_to_the_end_has_lost_nothing(log: Log, fail: bool) -> None:
    """With too few in-sync replicas a new leader's high watermark stays where it was."""
    log.epoch, log.epoch_ends = 1, {0: 31}

    with pytest.raises(LeadlineSparkError, match=r"LEADER_UNREACH.*offset 30 was not readable"):
        read(log, 0, 31, patience_s=0.3, fail=fail)


def test_a_hole_that_no_batch_accounts_for_is_a_loss(log: Log) -> None:
    del log.kept[10]

    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_DATA_LOSS.*offsets 10 to 19"):
        read(log, 0, 30)
    assert read(log, 0, 30, fail=False) == [*range(10), *range(20, 30)]


def test_a_batch_that_covers_more_offsets_than_it_has_records_is_corrupt(log: Log) -> None:
    """What compaction would leave; nothing compacts logs, so that records are missing."""
    records = [OutgoingRecord(b"", None, (), 5)]
    thin = bytearray(batches.encode(records, now_ms=5))
    thin[23:27] = (9).to_bytes(4, "big")
    batches.stamp(thin, header_at(thin), 10, 0)
    checksum = crc32c(bytes(thin[21:]))
    thin[17:21] = checksum.to_bytes(4, "big")
    log.kept[10] = bytes(thin)

    with pytest.raises(LeadlineSparkError, match="LEADLINE_BATCH_CORRUPT"):
        read(log, 0, 30)


def test_what_retention_took_is_a_loss(log: Log) -> None:
    del log.kept[0]
    log.start = 10

    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_DATA_LOSS.*the log begins at 10"):
        read(log, 0, 30)
    assert read(log, 0, 30, fail=False) == list(range(10, 30))


def test_what_an_election_cut_off_is_a_loss_even_where_new_records_took_its_place(log: Log) -> None:
    """Epoch 0 had offsets up to 30 committed; the leader of epoch 1 never had those from 25 on."""
    log.epoch, log.epoch_ends = 1, {0: 25}

    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_DATA_LOSS.*cut off.*epoch 1"):
        read(log, 0, 30)
    assert read(log, 0, 30, fail=False) == list(range(25))


def test_a_partition_that_was_removed_and_added_again_is_not_read_for_the_old_one(log: Log) -> None:
    """Its topic is the same, its offsets begin again; only its epochs are all later."""
    log.epoch = log.first_epoch = 3
    log.epoch_ends = {0: 0}

    with pytest.raises(LeadlineSparkError, match="LEADLINE_DATA_LOSS"):
        read(log, 0, 30)
    assert read(log, 0, 30, fail=False) == []


def test_an_election_that_cut_nothing_off_is_followed(log: Log, broker: StandIn) -> None:
    log.epoch = 3

    assert read(log, 0, 30) == list(range(30))
    assert len([one for one in broker.asked if "/epochs/0" in one.path]) == 1


def test_a_topic_recreated_is_not_read_for_the_old_one(log: Log) -> None:
    log.topic_id = "another"

    with pytest.raises(LeadlineSparkError, match="LEADLINE_TOPIC_RECREATED"):
        read(log, 0, 30)


def test_a_shorter_topic_recreated_is_recognised(log: Log) -> None:
    log.topic_id, log.end = "another", 5

    with pytest.raises(LeadlineSparkError, match="LEADLINE_TOPIC_RECREATED"):
        read(log, 10, 30)


def test_a_topic_that_is_gone_ends_a_read_that_accepts_losses(log: Log, broker: StandIn) -> None:
    """Half-way: what came before is kept, and nothing of its namesake is taken for it."""

    def answer(asked: Asked) -> Said:
        if asked.params.get("offset") == "10":
            log.topic_id = "another"
        return log.answer(asked)

    broker.answer = answer

    assert read(log, 0, 30, fail=False) == list(range(10))


def test_a_topic_that_was_deleted_is_an_error_unless_losses_are_accepted(
    log: Log, broker: StandIn
) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path == "/v1/metadata":
            return metadata({}, {}, version=2)
        return refusal(404, 40403, retriable=True)

    broker.answer = answer

    with pytest.raises(LeadlineSparkError, match="LEADLINE_TOPIC_UNKNOWN"):
        read(log, 0, 30, patience_s=0.3)
    assert read(log, 0, 30, patience_s=0.3, fail=False) == []


def test_a_changed_byte_is_an_error_and_names_the_place(log: Log) -> None:
    spoilt = bytearray(log.kept[10])
    spoilt[-1] ^= 1
    log.kept[10] = bytes(spoilt)

    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_BATCH_CORRUPT.*t-0 \[0, 30\)"):
        read(log, 0, 30)


def test_a_task_that_is_given_up_leaves_a_connection_for_the_next(
    log: Log, broker: StandIn
) -> None:
    """As after LIMIT: Spark drops the generator, some time later."""
    settings = ReadSettings(("offset",), 1, 5.0)
    asked = Range(PARTITION, "id", 0, 30, 0)
    given_up = read_range(Connection((log.url,)), asked, log.url, settings)
    assert next(given_up).num_rows == 10
    del given_up

    assert read(log, 0, 30) == list(range(30))
    assert broker.connections == 1


def test_nobody_who_leads_is_an_error_after_the_deadline(log: Log, broker: StandIn) -> None:
    log.leads = False

    def answer(asked: Asked) -> Said:
        lost = "/records" in asked.path
        return refusal(421, 42150, retriable=True) if lost else log.answer(asked)

    broker.answer = answer
    with pytest.raises(LeadlineSparkError, match="LEADLINE_LEADER_UNREACHABLE"):
        read(log, 0, 30, patience_s=0.3)


@dataclass
class Followed:
    """A leader with a follower in the ISR, each with the log that it serves."""

    leader: Log
    follower: Log
    asked: list[Asked]

    def read(self) -> list[int]:
        settings = ReadSettings(("offset",), 1, 5.0, any_replica=True)
        asked = Range(PARTITION, "id", 0, 30, 0)
        found = read_range(Connection((self.leader.url,)), asked, self.leader.url, settings)
        return [offset for one in found for offset in one.column(0).to_pylist()]

    def offsets_of_the_leader(self) -> list[int]:
        return [int(one.params["offset"]) for one in self.asked if one.path.endswith("/records")]


@pytest.fixture
def followed(log: Log, broker: StandIn) -> Iterator[Followed]:
    with stand_in() as other:
        follower = Log(dict(log.kept), end=30, url=other.url)
        other.answer = follower.answer

        def answer(asked: Asked) -> Said:
            if asked.path == "/v1/metadata":
                rows = [[0, 1, log.epoch, [1, 2], [1, 2]]]
                return metadata({1: log.url, 2: other.url}, {"t": (log.topic_id, rows)})
            return log.answer(asked)

        broker.answer = answer
        yield Followed(log, follower, broker.asked)


def test_defect_18_spark_replica_any_reads_from_a_follower(followed: Followed) -> None:
    assert followed.read() == list(range(30))
    assert followed.offsets_of_the_leader() == []


def test_defect_18_spark_replica_any_continues_at_the_leader(followed: Followed) -> None:
    """Where the follower's high watermark is behind, has deleted records, or has lost some."""
    del followed.follower.kept[20]
    followed.follower.end = 20
    assert followed.read() == list(range(30))
    assert followed.offsets_of_the_leader() == [20]


@pytest.mark.parametrize("fault", ["start", "gap", "topic"])
def test_defect_18_spark_replica_any_leaves_losses_to_the_leader(
    followed: Followed, fault: str
) -> None:
    if fault == "start":
        followed.follower.start = 10
    elif fault == "gap":
        del followed.follower.kept[0]
    else:
        followed.follower.topic_id = "another"
    assert followed.read() == list(range(30))
    assert followed.offsets_of_the_leader() == [0, 10, 20]


def test_defect_18_spark_replica_any_does_not_read_the_follower_of_an_earlier_leader(
    followed: Followed,
) -> None:
    followed.leader.epoch = 1
    settings = ReadSettings(("offset",), 1, 5.0, any_replica=True)
    asked = Range(PARTITION, "id", 0, 30, 1)
    found = read_range(Connection((followed.leader.url,)), asked, followed.leader.url, settings)
    assert sum(one.num_rows for one in found) == 30
    assert followed.offsets_of_the_leader() == [0, 10, 20]


def test_defect_18_spark_replica_any_asks_the_nearest_rack_first() -> None:
    def nearest(rack: str | None, isr: list[int]) -> list[str]:
        racks = {1: "a", 2: "b", 3: "b", 4: "c"}
        brokers = [
            {"id": n, "url": f"http://{n}", "rack": rack, "incarnation": 1}
            for n, rack in racks.items()
        ]
        topics = {"t": {"topic_id": "id", "partitions": [[0, 1, 0, isr, [1, 2, 3, 4]]]}}
        document = {"cluster_id": "c", "version": 1, "brokers": brokers, "topics": topics}
        return nearest_first(Metadata.from_json(document), PARTITION, rack, list.sort)

    everyone = [1, 2, 3, 4]
    assert nearest("c", everyone) == ["http://4", "http://2", "http://3"]
    assert nearest("b", everyone) == ["http://2", "http://3", "http://4"]
    assert nearest("b", [1, 2, 4]) == ["http://2", "http://4"], "3 is not in sync"
    assert nearest("a", everyone) == [], "the leader is the nearest"
    assert nearest("elsewhere", everyone) == nearest(None, everyone)
    assert nearest(None, everyone) == ["http://2", "http://3", "http://4"]
