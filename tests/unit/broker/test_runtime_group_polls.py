"""Polls of a consumer at a broker that replicates for real; the test is the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest

from leadline_broker.api.app import build_app
from leadline_broker.runtime.serving import group_polls
from leadline_client.errors import (
    CoordinatorNotAvailable,
    LeadlineError,
    NotCoordinator,
    QuotaExceeded,
    TopicIdMismatch,
)
from leadline_common import rpc
from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.group_polls import AssignedRow, SessionPoint, SyncAnswer, SyncRequest
from leadline_common.http.access import Authentication
from leadline_common.http.app import ServiceApp
from leadline_common.identity import InternalAddress
from leadline_common.metrics import Metrics
from leadline_common.routed_records import RoutedData, RoutedRead
from tests.support.services.zookeeper import until
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch, three

PATH = "/v1/groups/g/consumers/m/poll"


@dataclass
class Coordinator:
    """Says what the member owns: partition 0 of the topic, unless a test says something else."""

    answer: SyncAnswer
    asked: list[SyncRequest] = field(default_factory=list)
    failure: LeadlineError | None = None
    news: dict[str, bool] = field(default_factory=dict)
    """What the next watch is told."""
    assigns_when_watched: bool = False

    @property
    def is_watched(self) -> bool:
        return any(one.watch is not None for one in self.asked)

    async def sync(self, member: str, request: SyncRequest) -> SyncAnswer:
        assert member == "m"
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure
        if request.watch is not None:
            news, self.news = self.news, {}
            if self.assigns_when_watched:
                self.assign(0)
            return msgspec.structs.replace(self.answer, partitions=[], **news)
        point = self.answer.point
        self.answer = msgspec.structs.replace(
            self.answer, point=SessionPoint(point.epoch, point.connection, 1, point.answer + 1)
        )
        return self.answer

    def assign(
        self,
        offset: int | None,
        since: int = 1,
        reset: Any = "earliest",
        topic_id: str = TOPIC_ID,
        leader_epoch: int | None = None,
    ) -> None:
        row = AssignedRow(TOPIC, topic_id, 0, since, offset, leader_epoch)
        self.answer = SyncAnswer(SessionPoint(1, 1, 1, 0), 1, 30_000, 30_000, reset, [row])

    def assign_nothing(self) -> None:
        self.answer = msgspec.structs.replace(self.answer, partitions=[])


@dataclass
class World:
    """A leader, a coordinator, and a consumer's requests."""

    cluster: SmallCluster
    app: ServiceApp
    http: httpx.AsyncClient
    coordinator: Coordinator

    async def poll(self, **body: Any) -> dict[str, Any]:
        answer = await self.http.post(PATH, json={"secret": "s", "wait_ms": 0, **body})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def values(answer: dict[str, Any]) -> list[str]:
    return [record["value"] for record in answer["records"]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with await three(tmp_path) as cluster:
        broker = cluster.brokers[1]
        active = rpc.ControllerRow(7, "http://coordinator", 1)

        async def found(on_hint: Callable[[], None]) -> rpc.ControllerRow:
            del on_hint
            return active

        cluster.stores[1].coordinator = found  # type: ignore[method-assign]  # there is one here
        broker.coordinator_finder.current = active
        coordinator = Coordinator(SyncAnswer(SessionPoint(1, 1, 1, 0), 1, 1, 1, "earliest"))
        coordinator.assign(None)
        cluster.wires[1].on_sync = coordinator.sync
        app = build_app(broker, request_max_bytes=1 << 20, metrics=Metrics())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
            yield World(cluster, app, http, coordinator)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_another_topic_of_the_name_resets_no_position(world: World, reset: str) -> None:
    """Its log says nothing about the offsets of the topic that the consumer reads (rule R1)."""
    await world.cluster.produce(1, "a", "b")
    world.coordinator.assign(9, reset=reset, topic_id="another")

    answer = await world.poll()

    assert (answer["records"], answer["resets"]) == ([], [])
    assert answer["assignment"] == [{"topic": TOPIC, "partition": 0, "position": 9}]
    assert [error["error_code"] for error in answer["errors"]] == [TopicIdMismatch.code]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_no_position_begins_in_another_topic_of_the_name(world: World, reset: str) -> None:
    await world.cluster.produce(1, "a", "b")
    world.coordinator.assign(None, reset=reset, topic_id="another")

    answer = await world.poll()

    assert answer["assignment"] == [{"topic": TOPIC, "partition": 0, "position": None}]
    assert [error["error_code"] for error in answer["errors"]] == [TopicIdMismatch.code]


async def test_the_cursor_moves_the_position_and_a_repeated_poll_does_not(world: World) -> None:
    await world.cluster.produce(1, "a", "b", "c")

    first = await world.poll(max_records=2)
    repeated = await world.poll(max_records=2)
    second = await world.poll(cursor=first["cursor"])

    assert values(first) == values(repeated) == ["a", "b"]
    assert values(second) == ["c"]
    assert second["assignment"] == [{"topic": TOPIC, "partition": 0, "position": 3}]
    assert [one.commit for one in world.coordinator.asked] == [True, True, True]


async def test_a_reader_over_its_quota_can_commit_and_stays_a_member(world: World) -> None:
    """A refused poll reached no coordinator: the lease ran out, and what was read came again."""
    await world.cluster.produce(1, "a" * 1_000)
    world.app.quotas.settings = lambda: SimpleNamespace(quota_fetch_bytes_per_s=1)
    first = await world.poll()
    more = {"secret": "s", "wait_ms": 0, "cursor": first["cursor"]}
    refused = await world.http.post(PATH, json=more)
    assert (refused.status_code, refused.json()["error_code"]) == (429, QuotaExceeded.code)
    wait_s = refused.json()["retry_after_s"]
    assert len(world.coordinator.asked) == 1

    kept = await world.poll(cursor=first["cursor"], max_records=0)

    assert kept["records"] == []
    assert kept["lease_ms"] == first["lease_ms"]
    assert [one.cursor for one in world.coordinator.asked] == [None, first["cursor"]]
    refused = await world.http.post(PATH, json=more)
    assert refused.status_code == 429, "nothing was read, and the quota is as it was"
    assert refused.json()["retry_after_s"] <= wait_s, "nor does it count"


async def test_a_committed_offset_counts_where_the_cursor_does_not(world: World) -> None:
    await world.cluster.produce(1, "a", "b", "c")
    world.coordinator.assign(1)
    first = await world.poll(max_records=1)
    assert values(first) == ["b"]

    world.coordinator.assign(0, since=9)  # lost and regained since the cursor
    assert values(await world.poll(cursor=first["cursor"])) == ["a", "b", "c"]


@pytest.mark.parametrize(("since", "expected"), [(1, ["b", "c"]), (0, ["c"])])
async def test_in_a_new_session_only_what_was_kept_goes_on_at_the_cursor(
    world: World, since: int, expected: list[str]
) -> None:
    await world.cluster.produce(1, "a", "b", "c")
    first = await world.poll(max_records=2)
    assert values(first) == ["a", "b"]

    world.coordinator.assign(1, since=since)
    answer = world.coordinator.answer
    again = msgspec.structs.replace(answer, point=SessionPoint(1, 2, 1, 0))
    world.coordinator.answer = again

    assert values(await world.poll(cursor=first["cursor"])) == expected


async def test_rights_that_are_taken_away_end_a_consumer(world: World) -> None:
    await world.cluster.produce(1, "a")
    token = new_token(bytes(range(38)))
    kept = KeptToken(token.id, hash_of(token), 0)
    shown = {"Authorization": f"Bearer {token}"}
    grant = Grant(Role.CONSUMER, (TOPIC,), ("g",))

    async def status_with(*grants: Grant) -> int:
        users = Users.of({"alice": User(grants=grants, tokens=(kept,))})
        world.app.authentication = Authentication(required=True, users=lambda: users)
        body = {"secret": "s", "wait_ms": 0}
        return (await world.http.post(PATH, json=body, headers=shown)).status_code

    assert await status_with(grant) == 200
    assert await status_with(Grant(Role.CONSUMER, ("other",), ("g",))) == 403
    asked = len(world.coordinator.asked)
    assert await status_with(Grant(Role.CONSUMER, (TOPIC,), ("other",))) == 403
    assert await status_with() == 403
    assert len(world.coordinator.asked) == asked


async def test_latest_waits_for_what_comes_and_misses_nothing(world: World) -> None:
    await world.cluster.produce(1, "old")
    world.coordinator.assign(None, reset="latest")
    first = await world.poll()
    assert values(first) == []

    await world.cluster.produce(1, "new")
    assert values(await world.poll(cursor=first["cursor"])) == ["new"]


async def test_a_change_is_asked_for_again_without_a_second_commit(world: World) -> None:
    await world.cluster.produce(1, "a")
    world.coordinator.assign_nothing()
    world.coordinator.news, world.coordinator.assigns_when_watched = {"changed": True}, True

    answer = await world.poll(wait_ms=20_000)

    assert values(answer) == ["a"]
    syncs = [one.commit for one in world.coordinator.asked if one.watch is None]
    assert syncs == [True, False]


async def test_a_poll_that_another_one_has_superseded_says_so(world: World) -> None:
    await world.cluster.produce(1, "a")
    world.coordinator.assign(1)
    world.coordinator.news = {"superseded": True}
    answer = await world.http.post(PATH, json={"secret": "s", "wait_ms": 10_000})
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40979)


@pytest.mark.parametrize("owned", [True, False])
async def test_a_broker_that_stops_lets_no_consumer_wait(world: World, *, owned: bool) -> None:
    if not owned:
        world.coordinator.assign_nothing()
    watched = asyncio.Event()

    async def sync(member: str, request: SyncRequest) -> SyncAnswer:
        if request.watch is not None:
            watched.set()
            await asyncio.Event().wait()
        return await world.coordinator.sync(member, request)

    world.cluster.wires[1].on_sync = sync
    waiting = asyncio.create_task(world.poll(wait_ms=20_000))
    await watched.wait()

    world.cluster.brokers[1].stop_serving()

    async with asyncio.timeout(5):
        assert (await waiting)["records"] == []


async def test_where_latest_begins_is_told_before_any_record(world: World) -> None:
    """Else a repeated poll would begin behind the records of an answer that was lost."""
    await world.cluster.produce(1, "old")
    world.coordinator.assign(None, reset="latest")
    polling = asyncio.create_task(world.poll(wait_ms=20_000))
    await until(lambda: polling.done() or world.coordinator.is_watched, "it answers or waits")

    await world.cluster.produce(1, "new")
    told = await polling
    assert (values(told), told["assignment"][0]["position"]) == ([], 1)

    lost = await world.poll(cursor=told["cursor"])
    again = await world.poll(cursor=told["cursor"])
    assert values(lost) == values(again) == ["new"]


async def test_a_position_out_of_the_log_is_reset_and_reported(world: World) -> None:
    await world.cluster.produce(1, "a")
    seek = [{"topic": TOPIC, "partition": 0, "offset": 50}]

    answer = await world.poll(seek=seek)

    assert answer["resets"] == [{"topic": TOPIC, "partition": 0, "position": 50, "reset_to": 0}]
    assert values(await world.poll(cursor=answer["cursor"])) == ["a"]


async def test_defect_50_a_position_at_the_end_of_another_log_is_reset(world: World) -> None:
    """The partition was added again, and has as many records as the consumer had read before."""
    world.cluster.publish(1, 3, (1, 2, 3))
    await world.cluster.grant(1, 2, 3, first_epoch=3)
    await world.cluster.produce(1, "a", "b")
    world.coordinator.assign(2, leader_epoch=0)

    answer = await world.poll()

    assert answer["resets"] == [{"topic": TOPIC, "partition": 0, "position": 2, "reset_to": 0}]
    again = await world.poll(cursor=answer["cursor"])
    assert values(again) == ["a", "b"]
    world.coordinator.assign(2, leader_epoch=3)
    assert (await world.poll())["resets"] == []


async def test_a_partition_that_cannot_be_read_is_not_tried_without_a_pause(world: World) -> None:
    await world.cluster.produce(1, "a")
    row = AssignedRow(TOPIC, "2" * 32, 0, 1, 0, None)  # of the topic before it was recreated
    world.coordinator.answer = msgspec.structs.replace(world.coordinator.answer, partitions=[row])

    answer = await world.poll(wait_ms=1_000)

    assert values(answer) == []
    assert len(world.coordinator.asked) < 10
    assert [row["retriable"] for row in answer["errors"]] == [True]


async def test_a_leader_that_does_not_answer_delays_a_poll_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not once for each of its partitions: the answer would come after the lease."""
    cluster, numbers, reads = world.cluster, (1, 2, 3), []
    for number in numbers:
        cluster.publish(2, 0, (1, 2, 3), partition=number)
    await cluster.grant(1, 2, 3, init=True, partitions=numbers)
    cluster.tell_metadata(1, partitions=numbers)
    for number in numbers:
        await cluster.brokers[2].engine.serving.produce(
            TOPIC, number, batch("a"), acks="all", timeout_ms=10_000
        )

    async def hang(to: InternalAddress, request: RoutedRead, timeout_ms: int) -> RoutedData:
        reads.append(request.partition)
        await asyncio.Event().wait()
        raise AssertionError(to, timeout_ms)

    monkeypatch.setattr(cluster.wires[1], "read_routed", hang)
    monkeypatch.setattr(group_polls, "_READ_MS", 200)
    rows = [AssignedRow(TOPIC, TOPIC_ID, number, 1, 0, None) for number in numbers]
    world.coordinator.answer = msgspec.structs.replace(world.coordinator.answer, partitions=rows)

    answer = await world.poll()

    assert len(reads) == 1
    assert [row["partition"] for row in answer["errors"]] == reads


async def test_a_record_of_another_format_is_an_error_and_not_lost(world: World) -> None:
    await world.cluster.produce(1, "not json")

    answer = await world.poll(format="json")
    again = await world.poll(cursor=answer["cursor"])

    assert [row["partition"] for row in answer["errors"]] == [0]
    assert values(again) == ["not json"]


@pytest.mark.parametrize("failure", [CoordinatorNotAvailable, NotCoordinator])
async def test_without_a_coordinator_nothing_is_read(
    world: World, failure: type[LeadlineError]
) -> None:
    """Who polls a broker need not look for another coordinator (seed 60509)."""
    world.coordinator.failure = failure("none")
    answer = await world.http.post(PATH, json={"secret": "s"})
    assert (answer.status_code, answer.json()["outcome"]) == (503, "refused")
    assert answer.json()["error_code"] == CoordinatorNotAvailable.code


@pytest.mark.parametrize(
    "body",
    [{}, {"secret": 1}, {"secret": "s", "cursor": "?"}, {"secret": "s", "max_records": -1}, []],
)
async def test_bad_polls_are_refused_before_the_coordinator_is_asked(
    world: World, body: Any
) -> None:
    answer = await world.http.post(PATH, json=body)
    assert answer.status_code == 400
    assert world.coordinator.asked == []
