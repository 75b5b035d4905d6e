"""Tasks and commits of a write, against brokers that forget to answer, move and refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from leadline_broker.api.produce import MAX_TIMEOUT_MS
from leadline_broker.api.staging import PublishBody
from leadline_client import batches
from leadline_client.batch_header import header_at
from leadline_client.wire import BrokerInfo, Metadata, PartitionInfo, TopicInfo, TopicPartition
from leadline_spark.cluster.cluster_client import Connection
from leadline_spark.codec.columns import HEADERS
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options
from leadline_spark.write import partition_writers
from leadline_spark.write.publishing import StagedBatches, WriteResult, drop_all, publish_all
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.write_task import WriteTask, first_partition
from tests.unit.spark.standin import Asked, Said, StandIn, metadata, refusal, stand_in

PARTITION = TopicPartition("t", 0)
UNKNOWN = refusal(504, 50450, outcome="unknown")

Answer = Callable[[Asked], Said]


class Leader:
    """A partition's leader: it appends, stages and publishes, once it has said what is planned."""

    def __init__(self, broker: StandIn) -> None:
        self.broker = broker
        self.planned: list[Said] = []
        self.appended: dict[tuple[int, int], bytes] = {}
        self.staged: dict[str, bytes] = {}
        self.leads = broker.url
        self.take: Answer = self.usual
        broker.answer = self.answer

    def answer(self, asked: Asked) -> Said:
        if asked.path == "/v1/metadata":
            rows = [[0, 1, 4, [1], [1]]]
            return metadata({1: self.leads}, {"t": ("id", rows)})
        if asked.path == "/v1/producer-ids":
            return Said({"producer_id": 7, "producer_epoch": 2})
        taken = self.take(asked)
        return self.planned.pop(0) if self.planned else taken

    def usual(self, asked: Asked) -> Said:
        if asked.path.endswith("/records"):
            header = header_at(asked.body)
            self.appended[header.producer_id, header.base_sequence] = asked.body
            return Said({"base_offset": 0, "leader_epoch": 4, "count": header.record_count})
        if asked.method == "DELETE":
            known = self.staged.pop(asked.path.rsplit("/", 1)[1], None)
            return refusal(404, 40452) if known is None else Said(status=204)
        name = f"s{len(self.staged)}"
        self.staged[name] = asked.body
        return Said({"staged_id": name, "records": 1, "bytes": 1, "expires_at_ms": 1}, 201)


@pytest.fixture
def leader() -> Iterator[Leader]:
    with stand_in() as broker:
        yield Leader(broker)


def settings(leader: Leader, *, streaming: bool = False, **given: Any) -> SinkSettings:
    options = {"bootstrap": leader.broker.url, "topic": "t", "deliveryTimeoutMs": "3000", **given}
    return SinkSettings.of(Options(OPTIONS, options), streaming=streaming)


def rows(count: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": [b"%d" % n for n in range(count)]})


def values(bodies: list[bytes]) -> list[bytes | None]:
    return [record.value for body in bodies for record in batches.decode(body)]


def test_defect_19_a_write_begins_at_a_random_partition(leader: Leader) -> None:
    drawn = Random(1).random
    starts = [first_partition(settings(leader), 0, drawn) % 4 for _ in range(40)]
    assert set(starts) == {0, 1, 2, 3}
    neighbours = [first_partition(settings(leader), number, lambda: 0.5) for number in range(3)]
    assert [one - neighbours[0] for one in neighbours] == [0, 1, 2]


def test_defect_19_a_repeated_exactly_once_write_begins_where_it_did(leader: Leader) -> None:
    def start(drawn: float, app: str = "a", version: str = "7") -> int:
        once = settings(leader, txnAppId=app, txnVersion=version)
        return first_partition(once, 2, lambda: drawn)

    assert start(0.1) == start(0.9)
    assert start(0.1, version="8") == start(0.1) + 1
    assert start(0.1, app="b") != start(0.1)


@pytest.mark.parametrize("version", [0, 1_764_000_000, 2**31 - 1])
def test_any_name_and_version_of_a_write_has_a_first_partition(
    leader: Leader, version: int
) -> None:
    # Many number their writes by the time in seconds, and the name's hash has 32 bits.
    for app in ("a", "b", "c", "d", "e"):
        once = settings(leader, txnAppId=app, txnVersion=str(version))
        assert WriteTask(once, 3).run(rows(2)).rows == 2


def test_a_task_numbers_its_batches(leader: Leader) -> None:
    done = WriteTask(settings(leader, batchBytes="50"), 0).run(rows(5))
    assert done == WriteResult(0, 5)
    assert sorted(leader.appended) == [(7, 0), (7, 2), (7, 4)]
    assert values([leader.appended[key] for key in sorted(leader.appended)]) == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]


@pytest.mark.parametrize("with_headers", [0, 1])
def test_rows_without_headers_and_others_with_them_share_a_batch(
    leader: Leader, with_headers: int
) -> None:
    # Spark gives rows to a task in parts: in one of them no row may have headers, in the next some.
    own: list[list[dict[str, Any]] | None] = [[{"key": "trace", "value": b"1"}], None]
    columns = {number: own if number == with_headers else [None, None] for number in range(2)}
    parts = [
        pa.record_batch(
            {"value": [b"%d" % number] * 2, "headers": pa.array(columns[number], HEADERS)}
        )
        for number in range(2)
    ]
    assert WriteTask(settings(leader), 0).run(iter(parts)).rows == 4
    (body,) = leader.appended.values()
    headers = [record.headers for record in batches.decode(body)]
    expected = [(("trace", b"1"),), ()]
    assert headers == ([*expected, (), ()] if with_headers == 0 else [(), (), *expected])


def test_what_may_have_been_appended_is_sent_again_as_it_was(leader: Leader) -> None:
    leader.planned = [UNKNOWN, Said(b"", closes=True, status=503)]
    WriteTask(settings(leader), 0).run(rows(3))
    bodies = {asked.body for asked in leader.broker.asked if asked.path.endswith("/records")}
    assert len(bodies) == 1, "with the same sequence numbers, so that a leader knows it again"
    assert sum(asked.path.endswith("/records") for asked in leader.broker.asked) == 3


def test_a_hint_is_followed_to_the_leader(leader: Leader) -> None:
    with stand_in() as other:
        behind = Leader(other)
        hint = {"id": 2, "url": other.url, "epoch": 5}
        leader.planned = [refusal(421, 42150, retriable=True, leader=hint)]
        leader.appended = {}
        WriteTask(settings(leader), 0).run(rows(3))
        assert values(list(behind.appended.values())) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (refusal(413, 41350), "LEADLINE_REFUSED"),
        (refusal(409, 40956), "LEADLINE_REFUSED"),
    ],
)
def test_what_is_refused_for_good_ends_the_task(leader: Leader, said: Said, code: str) -> None:
    leader.planned = [said]
    with pytest.raises(LeadlineSparkError, match=code):
        WriteTask(settings(leader), 0).run(rows(1))


@pytest.mark.parametrize("given", [{}, {"txnAppId": "a"}])
def test_a_batch_that_is_too_large_says_which_settings_decide(
    leader: Leader, given: dict[str, str]
) -> None:
    leader.planned = [refusal(413, 41350)]
    with pytest.raises(LeadlineSparkError, match=r"41350.*batchBytes.*max\.message\.bytes"):
        WriteTask(settings(leader, streaming=True, **given), 0).run(rows(1))


def test_a_task_gives_up_at_its_deadline(leader: Leader) -> None:
    leader.take = lambda _: UNKNOWN
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_LEADER_UNREACHABLE.*50450"):
        WriteTask(settings(leader, deliveryTimeoutMs="300"), 0).run(rows(1))


@pytest.mark.parametrize(
    ("last", "code"), [(UNKNOWN, "LEADER_UNREACHABLE"), (refusal(404, 40450), "REFUSED")]
)
@pytest.mark.parametrize("app", [None, "a"])
def test_an_error_after_an_unknown_outcome_says_that_it_is_unknown(
    leader: Leader, app: str | None, last: Said, code: str
) -> None:
    asked: list[Asked] = []

    def take(one: Asked) -> Said:
        asked.append(one)
        return UNKNOWN if len(asked) == 1 else last

    leader.take = take
    given = {"deliveryTimeoutMs": "300"} | ({"txnAppId": app} if app else {})
    sink = settings(leader, streaming=True, **given)
    staged = [WriteResult(0, 1, (uploads_of(leader, 0, 1),))]

    def write() -> None:
        WriteTask(sink, 0).run(rows(1))

    def publish() -> None:
        publish_all(sink, staged, 7)

    with pytest.raises(LeadlineSparkError, match=f"{code}.*outcome of an attempt is unknown"):
        (publish if app else write)()


def test_an_error_after_refusals_leaves_nothing_open(leader: Leader) -> None:
    leader.planned = [UNKNOWN]
    leader.take = lambda _: published()
    sink = settings(leader, streaming=True)
    task = WriteTask(sink, 0).run(rows(1))
    assert task.rows == 1
    leader.planned = [refusal(503, 50352, retriable=True), refusal(404, 40450)]
    with pytest.raises(LeadlineSparkError, match="40450") as refused:
        WriteTask(sink, 0).run(rows(1))
    assert "unknown" not in str(refused.value)


@pytest.mark.parametrize("path", ["/v1/metadata", "/v1/producer-ids"])
def test_a_task_waits_for_brokers_that_answer_nothing_for_a_while(
    leader: Leader, path: str
) -> None:
    left = {path: 2}

    def down_at_first(asked: Asked) -> Said:
        if left.get(asked.path, 0):
            left[asked.path] -= 1
            return refusal(503, 50350, retriable=True)
        return leader.answer(asked)

    leader.broker.answer = down_at_first
    assert WriteTask(settings(leader), 0).run(rows(2)).rows == 2


def test_a_task_that_has_staged_waits_for_brokers_too(leader: Leader) -> None:
    left = [refusal(503, 50350, retriable=True)] * 2

    def down_in_the_end(asked: Asked) -> Said:
        if asked.path == "/v1/metadata" and leader.staged and left:
            return left.pop()
        return leader.answer(asked)

    leader.broker.answer = down_in_the_end
    done = WriteTask(settings(leader, streaming=True, txnAppId="a"), 0).run(rows(2))
    assert done.staged[0].staged == ("s0",)
    assert left == []


def test_a_leader_that_refused_until_the_deadline_is_not_said_to_have_kept_silent(
    leader: Leader,
) -> None:
    leader.take = lambda _: refusal(503, 50352, retriable=True)
    with pytest.raises(LeadlineSparkError, match=r"LEADER_UNREACHABLE.*50352") as refused:
        WriteTask(settings(leader, deliveryTimeoutMs="300"), 0).run(rows(1))
    assert "No leader of t-0 served this" in str(refused.value)


def test_without_all_replicas_nothing_is_numbered(leader: Leader) -> None:
    WriteTask(settings(leader, acks="1"), 0).run(rows(1))
    assert list(leader.appended) == [(-1, -1)]
    assert {asked.params.get("acks") for asked in leader.broker.asked} == {"1", None}


def test_an_exactly_once_task_stages_and_says_where(leader: Leader) -> None:
    done = WriteTask(settings(leader, streaming=True, txnAppId="a", batchBytes="50"), 3).run(
        rows(3)
    )
    assert done == WriteResult(3, 3, (StagedBatches(PARTITION, leader.broker.url, ("s0", "s1")),))
    assert values(list(leader.staged.values())) == [b"0", b"1", b"2"]
    assert not leader.appended


def test_a_task_that_fails_tidies_up(leader: Leader) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(5)
        raise ArithmeticError("in the middle")

    with pytest.raises(ArithmeticError):
        WriteTask(settings(leader, streaming=True, txnAppId="a", batchBytes="50"), 0).run(failing())
    assert leader.staged == {}


def test_what_was_staged_goes_to_the_next_leader_once_more(leader: Leader) -> None:
    with stand_in() as other:
        behind = Leader(other)
        behind.staged["old"] = b"a copy that followers of the former leader have"
        behind.leads = leader.leads = other.url
        hint = {"id": 2, "url": other.url, "epoch": 5}
        gone = refusal(421, 42150, retriable=True, leader=hint)
        said = [Said({"staged_id": "old", "records": 1, "bytes": 1, "expires_at_ms": 1}, 201), gone]
        leader.take = lambda _: said.pop(0)
        writing = WriteTask(settings(leader, streaming=True, txnAppId="a", batchBytes="25"), 0)
        writing._metadata["t"] = led_by(leader.broker.url)
        (upload,) = writing.run(rows(3)).staged
    assert upload.leader == other.url
    assert values([behind.staged[name] for name in upload.staged]) == [b"0", b"1", b"2"]
    assert behind.staged.keys() == {*upload.staged}, "nothing is left to expire"


def test_a_leader_that_moved_behind_a_tasks_back_is_noticed_at_its_end(leader: Leader) -> None:
    with stand_in() as other:
        behind = Leader(other)
        leader.leads = other.url
        hint = {"id": 2, "url": other.url, "epoch": 5}
        writing = WriteTask(settings(leader, streaming=True, txnAppId="a"), 0)
        writing._metadata["t"] = led_by(leader.broker.url)
        usual, asked = leader.take, []

        def once(one: Asked) -> Said:
            asked.append(one)
            gone = refusal(421, 42150, retriable=True, leader=hint)
            return usual(one) if len(asked) == 1 else gone

        leader.take = once
        (upload,) = writing.run(rows(3)).staged
    assert upload.leader == other.url
    assert values([behind.staged[name] for name in upload.staged]) == [b"0", b"1", b"2"]


def led_by(url: str) -> Metadata:
    topics = {"t": TopicInfo("t", "id", (PartitionInfo(0, 1, 4, (1,), (1,)),))}
    return Metadata("c", 1, None, {1: BrokerInfo(1, url, None, 1)}, topics)


def published(duplicate: bool = False) -> Said:
    return Said({"base_offset": 1, "last_offset": 2, "leader_epoch": 4, "duplicate": duplicate})


def test_a_commit_publishes_in_the_order_of_the_tasks_until_it_knows(leader: Leader) -> None:
    leader.planned = [UNKNOWN, published(duplicate=True)]
    leader.take = lambda _: published()
    url = leader.broker.url
    messages = [
        WriteResult(2, 1, (StagedBatches(PARTITION, url, ("c",)),)),
        None,
        WriteResult(0, 1, (StagedBatches(PARTITION, url, ("a", "b")),)),
        WriteResult(1, 0),
    ]
    publish_all(settings(leader, streaming=True, txnAppId="app"), messages, 41)
    asked = [one for one in leader.broker.asked if one.path.endswith("/publish")]
    assert [one.body for one in asked] == [asked[0].body] * 2
    assert b'"app":"app","batch":41,"staged":["a","b","c"]' in asked[0].body


def test_a_stream_whose_numbers_begin_again_is_refused_rather_than_dropped(
    leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first batch is below the latest of that name: what is in it would be in no log."""
    later = {"base_offset": None, "last_offset": None, "leader_epoch": 4, "duplicate": True}
    leader.take = lambda _: Said(later)
    message = WriteResult(0, 1, (StagedBatches(PARTITION, leader.broker.url, ("a",)),))
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_PUBLISH_REFUSED.*new txnAppId"):
        publish_all(settings(leader, streaming=True, txnAppId="app"), [message], 0)
    publish_all(settings(leader, txnAppId="app", txnVersion="0"), [message], 0)
    assert "batch 0 of app is not written, as a later batch of that name was" in caplog.text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (40452, "LEADLINE_STAGED_LOST"),
        (40959, "LEADLINE_PUBLISH_REFUSED"),
        (40962, "LEADLINE_PUBLISH_REFUSED"),
        (41550, "LEADLINE_REFUSED"),
    ],
)
def test_a_commit_that_fails_says_why_and_tries_the_others(
    leader: Leader, error: int, code: str
) -> None:
    def take(asked: Asked) -> Said:
        return refusal(409, error) if "/partitions/0/" in asked.path else published()

    leader.take = take
    url = leader.broker.url
    uploads = tuple(
        StagedBatches(PARTITION._replace(partition=n), url, (f"s{n}",)) for n in range(3)
    )
    with pytest.raises(LeadlineSparkError, match=code):
        publish_all(settings(leader, streaming=True, txnAppId="a"), [WriteResult(0, 1, uploads)], 0)
    asked = {one.path for one in leader.broker.asked if one.path.endswith("/publish")}
    assert len(asked) == 3


def test_what_cannot_be_deleted_is_left_to_expire() -> None:
    dead = "http://127.0.0.1:9"
    uploads = [StagedBatches(PARTITION, leader, ("a", "b")) for leader in (dead, None, dead)]
    written = WriteResult(0, 1, tuple(uploads))
    options = Options(OPTIONS, {"bootstrap": dead, "topic": "t"})
    settings_ = SinkSettings.of(options, streaming=True)
    assert settings_.connection == Connection((dead,))
    drop_all(settings_, [written, None])


@pytest.mark.parametrize(
    ("given", "streaming", "code"),
    [
        ({"txnAppId": "a"}, False, "LEADLINE_OPTION_CONFLICT.*txnVersion"),
        ({"txnVersion": "1"}, False, "LEADLINE_OPTION_CONFLICT.*txnAppId"),
        ({"txnAppId": "a", "txnVersion": "1"}, True, "LEADLINE_OPTION_CONFLICT.*stream"),
        ({"txnAppId": "a", "acks": "1"}, True, "LEADLINE_OPTION_CONFLICT.*acks"),
        ({"txnAppId": "a", "txnVersion": "2147483648"}, False, "LEADLINE_OPTION_INVALID"),
        ({"txnAppId": ""}, True, "LEADLINE_OPTION_INVALID.*1 to 256"),
        ({"txnAppId": "a" * 257}, True, "LEADLINE_OPTION_INVALID.*1 to 256"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, str], streaming: bool, code: str) -> None:
    options = Options(OPTIONS, {"bootstrap": "http://x", "topic": "t", **given})
    with pytest.raises(LeadlineSparkError, match=code):
        SinkSettings.of(options, streaming=streaming)


def test_minus_one_is_kafkas_name_for_all() -> None:
    options = Options(OPTIONS, {"bootstrap": "http://x", "topic": "t", "kafka.acks": "-1"})
    assert SinkSettings.of(options, streaming=False).acks == "all"


def uploads_of(leader: Leader, partition: int, count: int) -> StagedBatches:
    """Return so many uploads that were staged for a partition."""
    names = tuple(f"p{partition}-{number}" for number in range(count))
    return StagedBatches(PARTITION._replace(partition=partition), leader.broker.url, names)


def test_more_uploads_than_one_publish_may_name_are_refused_before_anything_is_published(
    leader: Leader,
) -> None:
    leader.take = lambda _: published()
    many = [
        WriteResult(0, 1, (uploads_of(leader, 0, 1), uploads_of(leader, 1, 9_000))),
        WriteResult(1, 1, (uploads_of(leader, 1, 1_001), uploads_of(leader, 2, 1))),
    ]
    sink = settings(leader, streaming=True, txnAppId="a")
    with pytest.raises(LeadlineSparkError, match=r"PUBLISH_TOO_LARGE.* t-1.*10001.*batchBytes"):
        publish_all(sink, many, 7)
    assert not leader.broker.asked


def test_as_many_uploads_as_a_publish_may_name_are_published(leader: Leader) -> None:
    leader.take = lambda _: published()
    sink = settings(leader, streaming=True, txnAppId="a")
    publish_all(sink, [WriteResult(0, 1, (uploads_of(leader, 0, 10_000),))], 7)
    (asked,) = leader.broker.asked
    named = msgspec.json.decode(asked.body, type=PublishBody).staged
    assert len(named) == 10_000


def test_a_long_request_timeout_asks_leaders_for_no_more_than_they_take(leader: Leader) -> None:
    leader.take = lambda _: published()
    sink = settings(leader, streaming=True, txnAppId="a", requestTimeoutMs="600000")
    publish_all(sink, [WriteResult(0, 1, (uploads_of(leader, 0, 1),))], 7)
    (asked,) = leader.broker.asked
    assert msgspec.json.decode(asked.body, type=PublishBody).timeout_ms == MAX_TIMEOUT_MS
    assert sink.connection.timeout_s == 600.0


def test_a_task_stages_no_more_than_a_publish_may_name(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writers, "MOST_STAGED", 2)
    sink = settings(leader, streaming=True, txnAppId="a", batchBytes="50")
    assert WriteTask(sink, 3).run(rows(4)).staged[0].staged == ("s0", "s1")
    leader.staged.clear()
    with pytest.raises(LeadlineSparkError, match="LEADLINE_PUBLISH_TOO_LARGE"):
        WriteTask(sink, 3).run(rows(5))
    assert leader.staged == {}
