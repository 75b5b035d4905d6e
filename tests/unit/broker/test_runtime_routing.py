"""Requests for any partition at any broker, which passes on what it does not lead (R1, R15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from leadline_broker.api.app import build_app
from leadline_broker.domain.topic_appends import TopicLayout, failure_of, keyless_partition
from leadline_broker.runtime.serving.routing import Reading
from leadline_client.errors import (
    ConnectionLost,
    FencedLeaderEpoch,
    InvalidRequest,
    LeaderNotAvailable,
    LeadlineError,
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    RequestTimedOut,
    StaleIncarnation,
    StorageFailed,
    TopicIdMismatch,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.murmur2 import partition_for_key
from leadline_common.metrics import Metrics
from leadline_common.routed_records import RoutedAppend
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch, values

LEADERS = {0: 1, 1: 2, 2: 3}
EVERYTHING = Reading(offset=0, max_bytes=1 << 20)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    """Three brokers; each leads one partition, and knows who leads the others."""
    async with SmallCluster(tmp_path) as running:
        await running.start(1, 2, 3)
        for partition, leader in LEADERS.items():
            running.publish(leader, 0, (1, 2, 3), partition=partition)
        await running.grant(1, 2, 3, init=True, partitions=(0, 1, 2))
        tell_metadata(running, 1, 2, 3)
        yield running


def tell_metadata(cluster: SmallCluster, *to: int, topic_id: str = TOPIC_ID) -> None:
    """Tell brokers what is published of the three partitions."""
    cluster.tell_metadata(*to, partitions=(0, 1, 2), topic_id=topic_id)


async def produce(
    cluster: SmallCluster, at: int, partition: int, *records: str, timeout_ms: int = 5_000
) -> int:
    done = await cluster.brokers[at].engine.routed.produce(
        TOPIC, partition, batch(*records), acks="all", timeout_ms=timeout_ms
    )
    return done.base_offset


async def read(cluster: SmallCluster, at: int, partition: int, **options: Any) -> list[str]:
    reading = Reading(**{"offset": 0, "max_bytes": 1 << 20, **options})
    found = await cluster.brokers[at].engine.routed.fetch(TOPIC, partition, reading)
    return values(found.records)


async def move_leader(cluster: SmallCluster, partition: int, leader: int, epoch: int) -> None:
    cluster.publish(leader, epoch, (1, 2, 3), partition=partition)
    await cluster.grant(1, 2, 3, partitions=(partition,))


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_any_broker_takes_records_for_any_partition(cluster: SmallCluster, at: int) -> None:
    for partition in LEADERS:
        assert await produce(cluster, at, partition, "a", "b") == 0
        assert await produce(cluster, at, partition, "c") == 2
        for reader in (1, 2, 3):
            assert await read(cluster, reader, partition) == ["a", "b", "c"]


async def test_any_broker_knows_the_offsets_of_any_partition(cluster: SmallCluster) -> None:
    await produce(cluster, 1, 1, "a", "b")

    ends = [await cluster.brokers[at].engine.routed.offsets(TOPIC, 1, -1) for at in (1, 2, 3)]

    assert [(one.high_watermark, one.offset) for one in ends] == [(2, 2)] * 3


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize(
    ("stated", "refusal"), [(0, FencedLeaderEpoch), (2, UnknownLeaderEpoch)], ids=["old", "new"]
)
async def test_offsets_in_another_epoch_are_refused(
    cluster: SmallCluster, at: int, stated: int, refusal: type[LeadlineError]
) -> None:
    await move_leader(cluster, partition=1, leader=3, epoch=1)
    for broker in (1, 2, 3):
        tell_metadata(cluster, broker)
    routed = cluster.brokers[at].engine.routed

    with pytest.raises(refusal):
        await routed.offsets(TOPIC, 1, None, stated)

    assert (await routed.offsets(TOPIC, 1, None, 1)).leader_epoch == 1


async def test_a_request_follows_leadership_that_has_moved(cluster: SmallCluster) -> None:
    await move_leader(cluster, partition=1, leader=3, epoch=1)
    appending = asyncio.create_task(produce(cluster, 1, 1, "a"))
    reading = asyncio.create_task(read(cluster, 1, 1, wait_ms=5_000))
    await asyncio.sleep(0)  # Both ask broker 2 first, whom the old metadata name.
    assert not appending.done()

    tell_metadata(cluster, 1)

    assert await appending == 0
    assert await reading == ["a"]


async def test_without_a_leader_the_deadline_ends_the_search(cluster: SmallCluster) -> None:
    cluster.publish(-1, 1, (2,), partition=1)
    tell_metadata(cluster, 1)

    with pytest.raises(LeaderNotAvailable):
        await produce(cluster, 1, 1, "a", timeout_ms=100)


async def test_a_leader_that_cannot_be_reached_has_refused(cluster: SmallCluster) -> None:
    cluster.cut = {2}

    with pytest.raises(LeaderNotAvailable) as refusal:
        await produce(cluster, 1, 1, "a", timeout_ms=100)

    assert refusal.value.outcome == "refused"


async def test_an_unknown_outcome_is_never_tried_again(cluster: SmallCluster) -> None:
    sent: list[RoutedAppend] = []
    wire = cluster.wires[1]
    append = wire.append_routed

    async def lose_answer(to: Any, request: RoutedAppend, timeout_ms: int) -> Any:
        sent.append(request)
        await append(to, request, timeout_ms)
        raise ConnectionLost("the answer is lost")

    wire.append_routed = lose_answer  # type: ignore[method-assign]  # one lost answer
    with pytest.raises(ConnectionLost):
        await produce(cluster, 1, 1, "a")

    assert len(sent) == 1
    assert await read(cluster, 1, 1) == ["a"]


async def test_a_read_whose_answer_is_lost_is_tried_again(cluster: SmallCluster) -> None:
    await produce(cluster, 2, 1, "a")
    wire = cluster.wires[1]
    ask, lost = wire.read_routed, 0

    async def lose_one(to: Any, request: Any, timeout_ms: int) -> Any:
        nonlocal lost
        lost += 1
        if lost == 1:
            raise ConnectionLost("the answer is lost")
        return await ask(to, request, timeout_ms)

    wire.read_routed = lose_one  # type: ignore[method-assign]  # one lost answer
    assert await read(cluster, 1, 1) == ["a"]


async def test_a_timeout_of_the_leader_is_unknown_and_not_repeated(cluster: SmallCluster) -> None:
    cluster.cut = {3}

    with pytest.raises(RequestTimedOut) as error:
        await produce(cluster, 1, 1, "a", timeout_ms=100)

    assert error.value.outcome == "unknown"
    assert cluster.brokers[2].engine.serving.led(TOPIC, 1).log.log_end_offset == 1


async def test_batches_of_idempotent_producers_are_not_passed_on(cluster: SmallCluster) -> None:
    data = batch("a", producer=(7, 0, 0))

    with pytest.raises(InvalidRequest):
        await cluster.brokers[1].engine.routed.produce(
            TOPIC, 1, bytearray(data), acks="all", timeout_ms=100
        )
    with pytest.raises(InvalidRequest):
        await cluster.brokers[2].engine.routed_requests.append(passed_on(cluster, bytes(data)))


async def test_an_unknown_topic_or_partition_is_refused_at_once(cluster: SmallCluster) -> None:
    routed = cluster.brokers[1].engine.routed
    with pytest.raises(UnknownTopic):
        await routed.produce("no", 0, batch("a"), acks="all", timeout_ms=60_000)
    with pytest.raises(UnknownPartition):
        await routed.fetch(TOPIC, 9, EVERYTHING)


async def test_a_reader_learns_what_the_leader_refuses(cluster: SmallCluster) -> None:
    await produce(cluster, 1, 1, "a")

    with pytest.raises(OffsetOutOfRange) as refusal:
        await read(cluster, 1, 1, offset=5)
    await move_leader(cluster, partition=1, leader=2, epoch=1)
    tell_metadata(cluster, 1)
    with pytest.raises(FencedLeaderEpoch):
        await read(cluster, 1, 1, leader_epoch=0)

    assert refusal.value.details["high_watermark"] == 1


async def test_an_in_sync_follower_answers_without_asking_the_leader(cluster: SmallCluster) -> None:
    await produce(cluster, 2, 1, "a")
    await cluster.until(
        lambda: cluster.brokers[1].engine.replicas.find((TOPIC_ID, 1)) is not None, "a replica"
    )
    assert await read(cluster, 1, 1, any_replica=True, wait_ms=5_000) == ["a"]
    cluster.cut = {2}

    assert await read(cluster, 1, 1, any_replica=True) == ["a"]


async def test_a_follower_that_is_behind_asks_the_leader(cluster: SmallCluster) -> None:
    cluster.cut = {3}
    await cluster.brokers[1].engine.routed.produce(TOPIC, 0, batch("a"), acks="1", timeout_ms=100)
    cluster.cut = set()

    found = await read(cluster, 3, 0, offset=1, any_replica=True)

    assert found == []


def passed_on(cluster: SmallCluster, data: bytes, **changed: Any) -> RoutedAppend:
    request = RoutedAppend(
        broker_id=2,
        incarnation=cluster.brokers[2].state.incarnation,
        sender=1,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=1,
        leader_epoch=0,
        records=data,
        acks="1",
        timeout_ms=1_000,
    )
    return msgspec.structs.replace(request, **changed)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"broker_id": 3}, InvalidRequest),
        ({"incarnation": 99}, StaleIncarnation),
        ({"topic_id": "f" * 32}, TopicIdMismatch),
        ({"leader_epoch": -1}, FencedLeaderEpoch),
        ({"partition": 0}, NotLeader),
    ],
)
async def test_a_leader_checks_the_identities_and_passes_nothing_on(
    cluster: SmallCluster, changed: dict[str, Any], error: type[Exception]
) -> None:
    requests = cluster.brokers[2].engine.routed_requests

    with pytest.raises(error):
        await requests.append(passed_on(cluster, bytes(batch("a")), **changed))

    ends = [cluster.brokers[n].engine.serving.led(TOPIC, p).log for p, n in LEADERS.items()]
    assert [log.log_end_offset for log in ends] == [0, 0, 0]


# --- POST /v1/topics/{topic}/records ---


@pytest.fixture
async def http(cluster: SmallCluster) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app(cluster.brokers[1], request_max_bytes=1 << 20, metrics=Metrics())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as client:
        yield client


async def post(http: httpx.AsyncClient, records: Any, **query: Any) -> httpx.Response:
    return await http.post(f"/v1/topics/{TOPIC}/records", json={"records": records}, params=query)


async def test_records_go_where_their_keys_say(
    cluster: SmallCluster, http: httpx.AsyncClient
) -> None:
    keys = [f"customer-{number}" for number in range(20)]

    answer = await post(http, [{"key": key, "value": key} for key in keys])

    assert answer.status_code == 200
    rows = answer.json()["records"]
    assert [row["partition"] for row in rows] == [partition_for_key(k.encode(), 3) for k in keys]
    for partition in LEADERS:
        mine = [key for key, row in zip(keys, rows, strict=True) if row["partition"] == partition]
        assert await read(cluster, 2, partition) == mine
        assert [row["offset"] for row in rows if row["partition"] == partition] == list(
            range(len(mine))
        )


async def test_a_stated_partition_wins_and_keyless_records_stay_together(
    http: httpx.AsyncClient,
) -> None:
    answer = await post(
        http, [{"value": "a", "key": "k", "partition": 2}, {"value": "b"}, {"value": "c"}]
    )

    rows = answer.json()["records"]
    assert rows[0] == {"partition": 2, "offset": 0, "leader_epoch": 0}
    assert rows[1]["partition"] == rows[2]["partition"]


async def test_part_of_the_records_gives_207_with_the_outcome_of_each(
    cluster: SmallCluster, http: httpx.AsyncClient
) -> None:
    cluster.cut = {2}

    answer = await post(
        http,
        [{"value": str(n), "partition": n} for n in (1, 0, 1)],
        timeout_ms=200,
        acks="1",
    )

    assert answer.status_code == 207
    first, second, third = answer.json()["records"]
    assert second == {"partition": 0, "offset": 0, "leader_epoch": 0}
    assert first == third
    assert (first["partition"], first["error"]["outcome"]) == (1, "refused")
    assert "offset" not in first


async def test_no_success_is_no_success(cluster: SmallCluster, http: httpx.AsyncClient) -> None:
    cluster.cut = {2, 3}

    answer = await post(
        http, [{"value": str(n), "partition": n} for n in (1, 2)], timeout_ms=100, acks="1"
    )

    body = answer.json()
    assert (answer.status_code, body["outcome"]) == (503, "refused")
    assert [(row["partition"], row["error"]["error_code"]) for row in body["partitions"]] == [
        (1, LeaderNotAvailable.code),
        (2, LeaderNotAvailable.code),
    ]


async def test_an_unknown_outcome_is_an_error_of_its_status(
    cluster: SmallCluster, http: httpx.AsyncClient
) -> None:
    cluster.cut = {2, 3}

    answer = await post(http, [{"value": str(n), "partition": n} for n in (1, 0)], timeout_ms=100)

    assert (answer.status_code, answer.json()["outcome"]) == (504, "unknown")


@pytest.mark.parametrize(
    ("records", "field"),
    [
        ([], "body.records"),
        ([{"value": 7}], "body.records[0].value"),
        ([{"value": "a"}, {"value": "b", "key": 1}], "body.records[1].key"),
        ([{"value": "a", "partition": -1}], "body.records[0].partition"),
        ([{"value": "a", "partition": "0"}], "body.records[0].partition"),
        ([{"value": "a", "other": 1}], "body.records[0]"),
    ],
)
async def test_bad_records_are_refused_before_any_is_appended(
    cluster: SmallCluster, http: httpx.AsyncClient, records: Any, field: str
) -> None:
    answer = await post(http, records)

    assert answer.status_code == 400
    assert answer.json()["fields"][0]["field"] == field
    assert [await read(cluster, 1, partition) for partition in LEADERS] == [[], [], []]


async def test_one_unknown_partition_refuses_the_whole_request(
    cluster: SmallCluster, http: httpx.AsyncClient
) -> None:
    answer = await post(http, [{"value": "a", "partition": 0}, {"value": "b", "partition": 3}])

    assert (answer.status_code, answer.json()["error_code"]) == (404, UnknownPartition.code)
    assert await read(cluster, 1, 0) == []


async def test_other_media_types_and_idempotent_producers_are_refused(
    http: httpx.AsyncClient,
) -> None:
    path = f"/v1/topics/{TOPIC}/records"
    octets = await http.post(
        path, content=bytes(batch("a")), headers={"content-type": "application/octet-stream"}
    )
    stamped = await http.post(
        path,
        json={"records": [{"value": "a"}], "producer": {"id": 1, "epoch": 0, "sequence": 0}},
    )

    assert (octets.status_code, stamped.status_code) == (415, 400)


async def test_reads_with_route_any_need_no_leader(
    cluster: SmallCluster, http: httpx.AsyncClient
) -> None:
    await produce(cluster, 2, 1, "a")
    path = f"/v1/topics/{TOPIC}/partitions/1"

    found = await http.get(f"{path}/records", params={"offset": 0, "route": "any"})
    ends = await http.get(f"{path}/offsets", params={"route": "any"})
    strict = [
        await http.get(f"{path}/records", params={"offset": 0}),
        await http.get(f"{path}/offsets"),
        await http.get(f"{path}/records", params={"offset": 0, "route": "no"}),
        await http.get(f"{path}/offsets", params={"route": "no"}),
    ]

    assert [row["value"] for row in found.json()["records"]] == ["a"]
    assert ends.json()["high_watermark"] == 1
    assert [one.status_code for one in strict] == [421, 421, 400, 400]
    assert strict[0].json()["leader"]["id"] == 2


# --- decisions ---


def test_keyless_records_avoid_partitions_without_a_leader() -> None:
    chosen = {keyless_partition([0, 1, 2], [1, 2], number / 10) for number in range(10)}
    assert chosen == {1, 2}
    assert keyless_partition([0, 1, 2], [], 0.99) == 2


async def test_the_partition_of_a_record_is_found_without_a_search(cluster: SmallCluster) -> None:
    """A request may state 100,000 partitions, of a topic that has 10,000: a list took 13 s."""
    numbers = cluster.brokers[1].engine.topic_appends.layout(TOPIC).numbers
    assert isinstance(numbers, Set)
    assert numbers == {0, 1, 2}


def test_the_layout_hashes_like_the_client() -> None:
    layout = TopicLayout("t", frozenset(range(7)), 4)
    assert layout.place(None, b"") == partition_for_key(b"", 7)
    assert layout.place(None, None) == 4
    assert layout.place(6, b"k") == 6


def test_a_request_is_refused_only_if_nothing_can_have_been_appended() -> None:
    refused, unknown = NotEnoughReplicas("few"), ConnectionLost("lost")
    assert failure_of([refused, StorageFailed("full")]) is refused
    assert failure_of([refused, unknown]) is unknown
    assert failure_of([refused, unknown, None]) is None
