"""Consumer groups on a real cluster with two coordinators: the client and the command."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from leadline_client.client import AsyncClient, Client
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings, RebalanceListener
from leadline_client.errors import GroupNotEmpty, UnknownMember
from leadline_client.groups import ResetTo
from leadline_client.payloads import OutgoingRecord
from leadline_client.sync_consumer import Consumer
from leadline_client.wire import NewTopic, TopicPartition
from tests.support.services.cluster import wait_until
from tests.support.services.up import DEADLINE_S, Up, command_line, running, until

WORDS = (
    *("up", "--brokers", "1", "--controllers", "1", "--coordinators", "2"),
    *("--set", "zookeeper.session.timeout.ms=2000", "--set", "default.replication.factor=1"),
)
PARTITIONS = 4
PER_PARTITION = 50
COOPERATIVE = ConsumerSettings(protocol="cooperative", assignor="sticky")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("groups"), *WORDS) as up:
        yield up


def bootstrap(up: Up) -> list[str]:
    return [row["url"] for row in up.document["brokers"]]


def new_topic(up: Up, topic: str) -> None:
    with Client(bootstrap(up)) as client:
        client.create_topic(NewTopic(topic, PARTITIONS, 1))
    produce(up, topic)


def produce(up: Up, topic: str) -> None:
    with Client(bootstrap(up)) as client:
        for number in range(PARTITIONS):
            records = [OutgoingRecord(str(one).encode()) for one in range(PER_PARTITION)]
            client.produce(topic, number, records)


def start_again(row: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(row["argv"], stderr=subprocess.DEVNULL)


class Member:
    """A consumer that polls in a task of its own, and writes down all that happens."""

    def __init__(self, up: Up, group: str, topic: str, settings: ConsumerSettings) -> None:
        self.events: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.seen: Counter[tuple[int, int]] = Counter()
        self._stop = asyncio.Event()
        self._client = AsyncClient(bootstrap(up))
        listener = RebalanceListener(
            lambda those: self.events.append(("assigned", those)),
            lambda those: self.events.append(("revoked", those)),
            lambda those: self.events.append(("lost", those)),
        )
        self.consumer = AsyncConsumer(self._client, group, settings=settings, listener=listener)
        self._task = asyncio.create_task(self._run(topic))

    async def _run(self, topic: str) -> None:
        async with self._client, self.consumer:
            await self.consumer.subscribe([topic])
            while not self._stop.is_set():
                for one in await self.consumer.poll(0.2):
                    self.seen[one.partition, one.offset] += 1

    async def until(self, count: int) -> None:
        async def seen() -> bool:
            return len(self.seen) >= count or self._task.done()

        await wait_until(seen, f"{count} records came")

    async def owns(self, count: int) -> None:
        async def owned() -> bool:
            return len(self.consumer.assignment) == count or self._task.done()

        await wait_until(owned, f"{count} partitions are owned")

    async def stop(self) -> None:
        self._stop.set()
        await self._task


async def test_members_share_a_topic_and_hand_over_without_a_gap_or_a_repetition(up: Up) -> None:
    new_topic(up, "shared")
    first = Member(up, "sharing", "shared", COOPERATIVE)
    await first.owns(PARTITIONS)
    await first.until(PARTITIONS * PER_PARTITION)
    second = Member(up, "sharing", "shared", COOPERATIVE)
    await second.owns(PARTITIONS // 2)
    produce(up, "shared")
    await second.until(PARTITIONS // 2 * PER_PARTITION)
    await first.until(PARTITIONS // 2 * 3 * PER_PARTITION)
    await first.stop()
    await second.owns(PARTITIONS)
    produce(up, "shared")
    await second.until(PARTITIONS // 2 * 3 * PER_PARTITION)
    await second.stop()
    seen = first.seen + second.seen
    assert set(seen.values()) == {1}
    assert len(seen) == 3 * PARTITIONS * PER_PARTITION
    kept = set(second.events[0][1])
    assert [kind for kind, _ in first.events] == ["assigned", "revoked", "revoked"]
    assert set(first.events[1][1]) == kept, "in cooperative mode only what moves is stopped"


async def test_a_coordinator_that_is_killed_takes_nothing_from_anybody(up: Up) -> None:
    new_topic(up, "calm")
    members = [Member(up, "calm", "calm", ConsumerSettings(auto_commit_ms=100)) for _ in range(2)]
    for member in members:
        await member.owns(PARTITIONS // 2)
    before = [list(member.events) for member in members]
    async with AsyncClient(bootstrap(up)) as client:
        active = (await client.find_coordinator())["coordinator"]
        row = next(one for one in up.file()["coordinators"] if one["id"] == active["id"])
        os.kill(row["pid"], signal.SIGKILL)
        again = start_again(row)
        try:
            produce(up, "calm")
            for member in members:
                await member.until(PARTITIONS // 2 * 2 * PER_PARTITION)

            async def is_succeeded() -> bool:
                now = (await client.find_coordinator())["coordinator"]
                return now is not None and now["epoch"] > active["epoch"]

            await wait_until(is_succeeded, "another coordinator rules")
            assert [member.events for member in members] == before
            await asyncio.gather(*(member.consumer.commit() for member in members))
            rows = (await client.group_offsets("calm"))["offsets"]
            assert [one["offset"] for one in rows] == [2 * PER_PARTITION] * PARTITIONS
            await asyncio.gather(*(member.stop() for member in members))
        finally:
            again.terminate()
            again.wait(DEADLINE_S)
    seen = members[0].seen + members[1].seen
    assert set(seen.values()) == {1}
    assert len(seen) == 2 * PARTITIONS * PER_PARTITION


def test_the_blocking_consumer_tells_its_listener_on_the_polling_thread(up: Up) -> None:
    new_topic(up, "blocking")
    threads: list[threading.Thread] = []
    settings = ConsumerSettings(auto_commit_ms=None)
    with Consumer(bootstrap(up), "blocking", settings=settings) as consumer:
        consumer.subscribe(["blocking"])
        first = [one for _, one in zip(range(30), consumer, strict=False)]
        consumer.commit()
        counted = sum(consumer.committed().values())
    assert len(first) == counted == 30

    def revoked(_: tuple[TopicPartition, ...]) -> None:
        threads.append(threading.current_thread())
        again.commit()  # as an application may: it must not wait for itself

    listener = RebalanceListener(on_revoked=revoked)
    with Consumer(bootstrap(up), "blocking", settings=settings, listener=listener) as again:
        again.subscribe(pattern="block.*")
        rest = 0
        while rest < PARTITIONS * PER_PARTITION - 30:
            rest += len(again.poll())
        assert again.poll(0.2) == []
    assert threads == [threading.current_thread()]
    with Client(bootstrap(up)) as client:
        rows = client.group_offsets("blocking")["offsets"]
    assert sum(row["offset"] for row in rows) == PARTITIONS * PER_PARTITION


def test_defect_18_one_consumer_has_topics_with_threads_each_and_a_pattern(up: Up) -> None:
    for topic in ("counted", "logs-eu", "uncounted"):
        new_topic(up, topic)
    with Consumer(bootstrap(up), "streams") as consumer:
        consumer.subscribe({"counted": 2, "uncounted": 1}, pattern="logs-.*")
        seen: Counter[str] = Counter()
        while seen.total() < 3 * PARTITIONS * PER_PARTITION:
            seen.update(one.topic for one in consumer.poll())
        first, second = consumer.threads
        member = up.ask("groups", "describe", "streams")["members"][0]
    assert set(seen.values()) == {PARTITIONS * PER_PARTITION}
    assert {one.topic for one in first} == {"counted", "uncounted", "logs-eu"}
    assert [one.topic for one in second] == ["counted"] * (PARTITIONS // 2)
    assert member["topic_threads"] == {"counted": 2, "uncounted": 1}
    assert (member["topics"], member["pattern"]) == (["counted", "uncounted"], "logs-.*")


def test_defect_05_a_commit_that_arrives_late_does_not_move_an_offset_back(up: Up) -> None:
    """The request is sent again, as a network may deliver it, after the consumer's next commit."""
    new_topic(up, "late")
    settings = ConsumerSettings(auto_commit_ms=None)
    with Consumer(bootstrap(up), "late", settings=settings) as consumer:
        consumer.subscribe(["late"])
        while not consumer.assignment:
            consumer.poll(0.1)
        consumer.commit({("late", 0): 10})
        consumer.commit({("late", 0): 20})
        group, known = up.ask("groups", "describe", "late"), consumer.group_metadata
        late = {
            "member": group["members"][0]["id"],
            "secret": None if known is None else known.secret,
            "generation": group["generation"],
            "coordinator_epoch": group["coordinator_epoch"],
            "sequence": 1,
            "offsets": [{"topic": "late", "partition": 0, "offset": 10}],
        }
        url = f"{bootstrap(up)[0]}/v1/groups/late/offsets"
        answer = httpx.post(url, json=late).raise_for_status().json()
        assert answer["offsets"][0]["superseded"]
        assert consumer.committed()[TopicPartition("late", 0)] == 20
        consumer.commit({("late", 0): 5})
        assert consumer.committed()[TopicPartition("late", 0)] == 5, "as after a seek"


def test_the_command_consumes_in_a_group_and_goes_on_where_it_ended(up: Up) -> None:
    new_topic(up, "lines")
    words = ("consume", "lines", "--group", "printing", "--json")
    first = up.run(*words, "--max", "70")
    assert first.returncode == 0, first.stderr
    rest = up.run(*words)
    assert rest.returncode == 0, rest.stderr
    rows = [json.loads(line) for line in (first.stdout + rest.stdout).splitlines()]
    assert len(first.stdout.splitlines()) == 70
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)
    assert len(rows) == PARTITIONS * PER_PARTITION
    assert up.ask("groups", "lag", "printing")["total"] == 0
    assert up.run(*words).stdout == ""
    assert up.run(*words, "--partition", "1").returncode == 2


def test_the_command_shows_and_changes_groups(up: Up) -> None:
    new_topic(up, "admin")
    follow = command_line("consume", "admin", "--group", "ops", "--follow", "--data-dir")
    consumer = subprocess.Popen([*follow, str(up.data_dir)], stdout=subprocess.DEVNULL)
    try:
        until(lambda: _members(up, "ops"), "the consumer has joined")
        described = up.ask("groups", "describe", "ops")
        assert described["members"][0]["owned"] == [["admin", [0, 1, 2, 3]]]
        member = described["members"][0]["id"]
        shown = up.run("groups", "describe", "ops").stdout
        assert f"last rebalance: {member} has joined" in shown
        assert shown.count(member) == 2
        assert "ops" in [row["group"] for row in up.ask("groups", "list")["groups"]]
        refused = up.run("groups", "reset", "ops", "--to", "earliest", "--yes", "--json")
        assert refused.returncode == 1
        assert json.loads(refused.stderr)["error_code"] == GroupNotEmpty.code
        assert up.run("groups", "rebalance", "ops").returncode == 0
        gone = up.run("groups", "evict", "ops", "nobody", "--json")
        assert json.loads(gone.stderr)["error_code"] == UnknownMember.code
        # Records not committed before the eviction would be printed, and committed, twice.
        with Client(bootstrap(up)) as client:
            until(lambda: client.group_lag("ops")["total"] == 0, "what it printed is committed")
        assert up.run("groups", "evict", "ops", member).returncode == 0
        until(lambda: _members(up, "ops") - {member}, "it has joined again as somebody new")
        consumer.send_signal(signal.SIGINT)
        consumer.wait(DEADLINE_S)
        assert _members(up, "ops") == set(), "Ctrl-C leaves the group"
    finally:
        consumer.kill()
        consumer.wait(DEADLINE_S)
    assert up.ask("groups", "lag", "ops")["total"] == 0
    tried = up.ask("groups", "reset", "ops", "--offset", "admin-1=7", "--dry-run")
    assert [(row["partition"], row["offset"]) for row in tried["offsets"]] == [(1, 7)]
    assert up.ask("groups", "lag", "ops")["total"] == 0
    up.ask("groups", "reset", "ops", "--to", "earliest", "--yes")
    assert up.ask("groups", "lag", "ops")["total"] == PARTITIONS * PER_PARTITION
    assert {row["offset"] for row in up.ask("groups", "offsets", "ops")["offsets"]} == {0}
    assert up.run("groups", "reset", "ops").returncode == 2
    assert up.run("groups", "delete", "ops", "--yes").returncode == 0
    assert up.run("groups", "describe", "ops").returncode == 1


def _members(up: Up, group: str) -> set[str]:
    done = up.run("groups", "describe", group, "--json")
    rows = json.loads(done.stdout)["members"] if done.returncode == 0 else []
    return {row["id"] for row in rows if row["owned"]}


def test_offsets_are_reset_from_python_too(up: Up) -> None:
    new_topic(up, "again")
    with Client(bootstrap(up)) as client:
        client.commit_offsets("simple", {("again", number): 5 for number in range(PARTITIONS)})
        assert client.group_lag("simple")["total"] == PARTITIONS * (PER_PARTITION - 5)
        client.reset_offsets("simple", ResetTo("latest", topics=("again",)))
        assert client.group_lag("simple")["total"] == 0


def test_doctor_knows_the_coordinator(up: Up) -> None:
    findings = {one["check"]: one for one in up.ask("doctor")["findings"]}
    assert findings["active coordinator"]["ok"]
