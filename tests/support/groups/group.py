"""A consumer group of real processes on a live cluster, with faults and checks.

    async with loaded_group(cluster, directory, "g1") as group:
        await group.start("a", "b")
        await group.settled("a", "b")
        ...
    # on leaving: the load stops, every acknowledged record is consumed, the logs are judged

A group's members are told apart by short names; the coordinator knows them by the
client id, which is that name.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from leadline_cli.processes import Child
from leadline_client.wire import NewTopic
from tests.support.faults.load import Load
from tests.support.freezing import freeze
from tests.support.groups import member as group_member
from tests.support.groups.log import (
    Event,
    EventReader,
    Freeze,
    Hold,
    Partition,
    holds_of,
    violations,
)
from tests.support.services.cluster import Cluster, wait_until

RATE = 300
"""Records per second that are offered to a topic."""
LEAST_ACKS = 200


@dataclass(slots=True)
class GroupMember:
    """One process; a name is used once."""

    name: str
    child: Child
    log: EventReader
    killed: bool = False
    instance: str | None = None

    def events(self) -> list[Event]:
        """Return what it has written down so far."""
        return self.log.read()


@dataclass(slots=True)
class Group:
    """A group and the processes in it."""

    cluster: Cluster
    directory: Path
    name: str
    topics: str | None = None
    pattern: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    members: dict[str, GroupMember] = field(default_factory=dict)
    freezes: list[Freeze] = field(default_factory=list)

    # -- what is done to members ---------------------------------------------------

    def start(self, *names: str, **options: str) -> None:
        """Start members; they are not waited for."""
        for name in names:
            log = self.directory / f"{self.name}-{name}.events"
            argv = [sys.executable, group_member.__file__]
            argv += ["--bootstrap", self.cluster.bootstrap, "--group", self.name]
            argv += ["--log", str(log), "--client-id", name]
            argv += ["--topics", self.topics] if self.topics else []
            argv += ["--pattern", self.pattern] if self.pattern else []
            for option, value in {**self.options, **options}.items():
                argv += [f"--{option.replace('_', '-')}", value]
            child = Child(name, argv, self.directory / f"{self.name}-{name}.log")
            child.start()
            instance = {**self.options, **options}.get("instance_id")
            self.members[name] = GroupMember(name, child, EventReader(name, log), instance=instance)

    async def leave(self, name: str) -> None:
        """End a member cleanly (SIGTERM)."""
        member = self.members[name]
        await member.child.stop()
        assert member.child.exit_code == 0, f"{name} ended badly:\n{member.child.tail()}"

    async def kill(self, name: str) -> None:
        """Kill -9 a member, and see it gone."""
        member = self.members[name]
        assert member.child.running
        await member.child.kill()
        member.killed = True
        assert member.child.exit_code == -signal.SIGKILL

    @asynccontextmanager
    async def frozen(self, *names: str) -> AsyncIterator[None]:
        """Freeze members while the block runs (SIGSTOP, SIGCONT)."""
        children = [self.members[name].child for name in names]
        for child in children:
            assert child.pid is not None, f"{child.name} has ended"
            await asyncio.to_thread(freeze, child.pid)
        since_s = time.monotonic()
        try:
            yield
        finally:
            until_s = time.monotonic()
            self.freezes += [Freeze(name, since_s, until_s) for name in names]
            for child in children:
                child.signal(signal.SIGCONT)

    # -- what is seen of them --------------------------------------------------------

    def running(self) -> list[str]:
        """Return the names of the members that run."""
        return [name for name, member in self.members.items() if member.child.running]

    def events(self) -> list[Event]:
        """Return what all members have written down, in order of time."""
        events = [event for member in self.members.values() for event in member.events()]
        return sorted(events, key=lambda event: event.at_s)

    def holds(self) -> list[Hold]:
        """Return who held what and when, by the members' own logs."""
        return [hold for member in self.members.values() for hold in self._holds_of(member)]

    def parts(self) -> dict[str, set[Partition]]:
        """Return what each running member holds now, by its own log."""
        found: dict[str, set[Partition]] = {}
        for name in self.running():
            open_holds = (h for h in self._holds_of(self.members[name]) if h.until_s == math.inf)
            found[name] = {hold.partition for hold in open_holds}
        return found

    async def document(self) -> dict[str, Any] | None:
        """Return the group as the coordinator shows it; None while it does not answer."""
        for service in self.cluster.supervisor.layout.coordinators:
            if self.cluster.child(service.name).running:
                # A frozen one does not answer: the other is asked then.
                try:
                    answer = await self.cluster.get(service.name, f"/v1/groups/{self.name}")
                except httpx.HTTPError:
                    continue
                if answer.status_code == httpx.codes.OK:
                    document: dict[str, Any] = answer.json()
                    return document
        return None

    async def offsets(self) -> dict[Partition, int]:
        """Return the committed offsets."""
        service = await self.cluster.active_coordinator()
        answer = await self.cluster.get(service, f"/v1/groups/{self.name}/offsets")
        rows = answer.raise_for_status().json()["offsets"]
        return {(row["topic"], row["partition"]): row["offset"] for row in rows}

    async def settled(
        self,
        *names: str,
        partitions: int = 6,
        without: Sequence[str] = (),
        deadline_s: float = 30.0,
    ) -> dict[str, set[Partition]]:
        """Wait until these are the members and each has a part of all partitions; return the parts.

        Coordinator and members must say the same of who has what. Those `without` whom
        the group is to settle run, and may believe in anything.
        """
        seen: list[object] = [None]

        async def agreed() -> bool:
            document = await self.document()
            if document is None:
                seen[0] = "no coordinator answers"
                return False
            shown = {
                member["client_id"]: {(t, n) for t, numbers in member["owned"] for n in numbers}
                for member in document["members"]
            }
            parts = {name: part for name, part in self.parts().items() if name not in without}
            seen[0] = {"state": document["state"], "coordinator": shown, "members": parts}
            return (
                document["state"] == "stable"
                and sorted(names) == sorted(shown) == sorted(parts)
                and shown == parts
                and all(parts.values())
                and sum(map(len, parts.values())) == partitions
            )

        try:
            await wait_until(agreed, f"{self.name} has settled with {names}", deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; seen: {seen[0]}\n{self._tails()}") from error
        return self.parts()

    async def consuming(self, partitions: Sequence[Partition], since_s: float) -> None:
        """Wait until something of each partition was consumed after a moment."""

        async def all_consumed() -> bool:
            return set(partitions) <= {
                partition
                for event in self.events()
                if event.kind == "consumed" and event.at_s > since_s
                for partition in event.partitions
            }

        await wait_until(all_consumed, f"all of {partitions} are consumed again")

    async def commit_as(
        self, member: Mapping[str, Any], document: Mapping[str, Any], offset: int = 0
    ) -> httpx.Response:
        """Commit as a member of `document`, an earlier look at the group, would."""
        offsets = [
            {"topic": topic, "partition": number, "offset": offset}
            for topic, numbers in member["owned"]
            for number in numbers
        ]
        service = await self.cluster.active_coordinator()
        body = {
            "member": member["id"],
            "secret": self._secrets().get(member["id"]),
            "generation": document["generation"],
            "coordinator_epoch": document["coordinator_epoch"],
            "offsets": offsets,
        }
        return await self.cluster.post(service, f"/v1/groups/{self.name}/offsets", json=body)

    def _secrets(self) -> dict[str, str]:
        """Return the secret of each member, by its id, as the members wrote them down."""
        known: dict[str, str] = {}
        for event in self.events():
            if event.kind == "member":
                member, secret = event.detail.split()
                known[member] = secret
        return known

    def judge(self, acked: Mapping[Partition, Sequence[int]]) -> list[str]:
        """Say everything that is wrong with what the members did."""
        instances = {m.name: m.instance for m in self.members.values() if m.instance is not None}
        return violations(self.name, self.events(), self.holds(), acked, instances)

    async def stop(self) -> None:
        """End all members, whatever state they are in."""
        for member in self.members.values():
            member.child.signal(signal.SIGCONT)
        await asyncio.gather(*(m.child.stop() for m in self.members.values() if m.child.running))

    def _holds_of(self, member: GroupMember) -> list[Hold]:
        mine = [freeze for freeze in self.freezes if freeze.member == member.name]
        return holds_of(member.events(), killed=member.killed, freezes=mine)

    def _tails(self) -> str:
        return "\n".join(f"--- {m.name}\n{m.child.tail(10)}" for m in self.members.values())


@dataclass(slots=True)
class LoadedGroup(Group):
    """A group whose topic is written to all the time."""

    loads: list[Load] = field(default_factory=list)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions of the loaded topic."""
        first = self.loads[0]
        return [(first.topic, number) for number in range(first.partitions)]

    @asynccontextmanager
    async def load(self, topic: str, partitions: int, rate: int = RATE) -> AsyncIterator[None]:
        """Write to a topic while the block runs; what was acknowledged is to be consumed."""
        label = f"{len(self.loads)}/"
        bootstrap = self.cluster.bootstrap
        async with Load(
            bootstrap, topic, partitions, rate=rate, batch_size=20, label=label
        ) as load:
            self.loads.append(load)
            await load.progress(records=20)
            yield

    def acknowledged(self) -> dict[Partition, list[int]]:
        """Return the offsets of all acknowledged records."""
        acked: dict[Partition, list[int]] = {}
        for load in self.loads:
            for ack in load.acks:
                offsets = range(ack.base_offset, ack.base_offset + ack.count)
                acked.setdefault((load.topic, ack.partition), []).extend(offsets)
        return acked

    async def verify(self) -> None:
        """Stop the load, let the members come to its end and commit it, and judge."""
        for load in self.loads:
            await load.stop()
        acked = self.acknowledged()
        assert sum(map(len, acked.values())) >= LEAST_ACKS, "void: hardly anything was written"

        async def all_committed() -> bool:
            offsets = await self.offsets()
            return all(offsets.get(one, 0) > max(numbers) for one, numbers in acked.items())

        try:
            await wait_until(all_committed, "every acknowledged record is committed")
        finally:
            found = self.judge(acked)
            assert not found, f"{len(found)} violations:\n" + "\n".join(found[:40])


@asynccontextmanager
async def loaded_group(
    cluster: Cluster,
    directory: Path,
    name: str,
    *,
    also: str | None = None,
    pattern: str | None = None,
    partitions: int = 6,
) -> AsyncIterator[LoadedGroup]:
    """Run a group on a topic of its own under load; on leaving, judge it and end its members.

    The topic is `<name>-topic`. The group asks for it, and for
    `also`; or else for what matches `pattern`.
    """
    topic = f"{name}-topic"
    await cluster.client.create_topic(NewTopic(topic, partitions, 3))
    topics = None if pattern else f"{topic},{also}" if also else topic
    group = LoadedGroup(cluster, directory, name, topics=topics, pattern=pattern)
    try:
        async with group.load(topic, partitions):
            yield group
            await group.verify()
    finally:
        await group.stop()
