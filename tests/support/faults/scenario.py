"""One fault scenario: a cluster under load, faults that are seen to happen, then every invariant.

    async with scenario(session_ms=1500) as s:
        await crash(s, await s.leader(0))
        ...
    # on leaving: all processes run again, the cluster settles, the invariants are checked

A scenario is void, and fails, when fewer than 1,000 records were acknowledged.
What a failed scenario leaves on disk is kept, and its place is printed, with that of a page that
shows what happened (tests/support/timeline). Its ZooKeeper is that of
the test run, with a chroot of its own, unless it has several members or a directory to start from.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from leadline_client.errors import LeadlineError
from leadline_client.wire import NewTopic
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry, PartitionState
from tests.support.checks.invariants import Findings, examine, unsettled
from tests.support.checks.sends import Outcome
from tests.support.checks.zk_history import ZkView, read_cluster
from tests.support.faults.links import Links, linked
from tests.support.faults.load import IMPATIENT, Load
from tests.support.faults.observer import Observer
from tests.support.services.cluster import Cluster, wait_until
from tests.support.timeline.collect import Run, timeline_of, wall_minus_monotonic_s
from tests.support.timeline.page import write_page

SESSION_MS = 1500
LINKED_SESSION_MS = 3000
"""For clusters whose sessions go through a proxy of the test, which shares a busy machine."""
TOPIC = "orders"
LEAST_ACKS = 1000
SETTLE_S = 45.0
TIMELINES = Path(__file__).resolve().parents[3] / ".artifacts" / "timelines"
_VIEW_WITHIN_S = 10.0

_SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
    "reconcile.interval.ms": "1000",
    # Small, so that segments roll many times in a test.
    "log.segment.bytes": str(256 * 1024),
}


_shared_zookeepers: list[str] = []


@contextmanager
def sharing_zookeeper(hosts: str) -> Iterator[None]:
    """Let the clusters of scenarios within the block use a running ZooKeeper."""
    _shared_zookeepers.append(hosts)
    try:
        yield
    finally:
        _shared_zookeepers.remove(hosts)


def rounds(quick: int, soak: int = 20) -> pytest.MarkDecorator:
    """Repeat a scenario's faults `quick` times, and `soak` times under `make soak`."""
    marks = [pytest.mark.soak, pytest.mark.repeated, pytest.mark.timeout(3600)]
    return pytest.mark.parametrize("rounds", [quick, pytest.param(soak, marks=marks)])


@dataclass(slots=True)
class Scenario:
    """A running cluster with one loaded topic."""

    cluster: Cluster
    load: Load
    observer: Observer | None = None
    findings: Findings | None = None
    """What the last examination found."""

    @property
    def topic(self) -> str:
        """The loaded topic."""
        return self.load.topic

    async def view(self) -> ZkView:
        """Return what ZooKeeper says now."""
        return await read_cluster(self.cluster)

    async def leader(self, partition: int = 0) -> str:
        """Return the name of a partition's leader."""
        return await self.cluster.leader_of(self.topic, partition)

    async def follower(self, partition: int = 0) -> str:
        """Return the name of some broker that follows a partition."""
        row = (await self.cluster.client.describe(self.topic)).partitions[partition]
        return f"broker-{next(one for one in row.replicas if one != row.leader)}"

    async def led_by(self, broker: str) -> list[int]:
        """Return the partitions that a broker leads."""
        rows = (await self.cluster.client.describe(self.topic)).partitions
        return [row.partition for row in rows if f"broker-{row.leader}" == broker]

    async def full_isr(self) -> None:
        """Wait until every replica is in sync."""
        view = await self.view()
        count = len(view.topics[self.topic].partitions[0])
        await self.cluster.in_sync(self.topic, count)

    async def settle(self) -> None:
        """Wait until every process runs, every replica is in sync, and all agree."""
        for name, child in self.cluster.supervisor.children.items():
            self.cluster.resume(name)
            if not child.running:
                self.cluster.restart(name)
        last: list[str] = ["nothing was looked at"]

        async def settled() -> bool:
            try:
                last[:] = await unsettled(self.cluster, self.topic)
            except httpx.HTTPError as error:
                last[:] = [f"a service does not answer: {error!r}"]
            return not last

        try:
            await wait_until(settled, "the cluster has healed", SETTLE_S)
        except AssertionError as error:
            raise AssertionError(f"not healed in {SETTLE_S:.0f} s (I15): {last}") from error

    async def verify(self) -> None:
        """Stop the load, let the cluster heal, and check every invariant."""
        await self.load.stop()
        await self.settle()
        found = (await self.examine()).lines()
        faults = self.observer.faults if self.observer is not None else []
        done = dict(Counter(fault.action for fault in faults))
        print(f"{self.load.summary()}; {done}")  # noqa: T201 - pytest shows it for failures and under -rP
        assert not found, f"{len(found)} violations:\n" + "\n".join(found)
        self.assert_loaded()

    def disk_was_replaced(self, broker: str) -> None:
        """Note that a broker loses logs now on purpose: that it lacks them is no finding."""
        if self.observer is not None:
            self.observer.replaced.add(int(broker.rpartition("-")[2]))

    async def examine(self) -> Findings:
        """Check every invariant of the settled cluster."""
        self.findings = await examine(self.cluster, self.load, self.observer)
        return self.findings

    def assert_loaded(self) -> None:
        """Fail a run that proves nothing, because hardly anything was acknowledged."""
        acknowledged = self.load.history.count(Outcome.ACKED)
        assert acknowledged >= LEAST_ACKS, f"void: {self.load.summary()}"


@asynccontextmanager
async def running_cluster(
    *,
    brokers: int = 3,
    controllers: int = 1,
    coordinators: int = 0,
    zookeeper_members: int = 1,
    racks: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    data_dir: Path | None = None,
) -> AsyncIterator[Cluster]:
    """Run a cluster in a directory that is removed afterwards, unless the block fails."""
    directory = data_dir or Path(tempfile.mkdtemp(prefix="leadline-e2e-"))
    shares = _shared_zookeepers and zookeeper_members == 1 and data_dir is None
    chroot = f"{_shared_zookeepers[-1]}/scenario-{uuid.uuid4().hex}" if shares else None
    cluster = Cluster(
        directory,
        brokers=brokers,
        controllers=controllers,
        coordinators=coordinators,
        zookeeper_members=zookeeper_members,
        zookeeper=chroot,
        racks=racks,
        settings={**_SETTINGS, **(settings or {})},
        policy=IMPATIENT,
    )
    try:
        async with cluster:
            yield cluster
    except BaseException:
        sys.stderr.write(f"the cluster's directory is kept: {directory}\n")
        raise
    if data_dir is None:
        shutil.rmtree(directory)


async def leave_timeline(running: Scenario, error: BaseException) -> None:
    """Write what is known of a scenario that failed as one page, and print where it is."""
    notes: list[str] = []
    audit: Sequence[AuditEntry] = ()
    try:
        audit = (await asyncio.wait_for(running.view(), _VIEW_WITHIN_S)).audit
    except (LeadlineError, ZkError, OSError, TimeoutError) as problem:
        notes.append(f"leaders, epochs and ISRs: ZooKeeper could not be read ({problem!r})")
    verdict = f"{type(error).__name__}: {error}"
    findings = running.findings
    if findings is None:
        notes.append("the cluster was not examined: anomalies are those of the readers alone")
        findings = Findings((), running.load.history.check())
    elif findings.lines():
        verdict = verdict.partition(":\n")[0]  # the page lists the rest
    test = os.environ.get("PYTEST_CURRENT_TEST", "scenario").rpartition("::")[2].partition(" ")[0]
    run = _run(running, findings, f"{test}, topic {running.topic}", verdict)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{test}-{running.topic}").strip("-")
    page = timeline_of(replace(run, audit=audit, notes=notes))
    path = write_page(page, TIMELINES, name)
    sys.stderr.write(f"timeline of the failed scenario: {path}\n")


def _run(running: Scenario, findings: Findings, title: str, verdict: str) -> Run:
    return Run(
        title=title,
        verdict=verdict,
        topic=running.topic,
        history=running.load.history,
        faults=running.observer.faults if running.observer is not None else (),
        anomalies=findings.anomalies,
        problems=findings.problems,
        ended_s=time.monotonic(),
        wall_minus_monotonic_s=wall_minus_monotonic_s(),
    )


@asynccontextmanager
async def loaded(
    cluster: Cluster, topic: NewTopic, label: str = "", rate: int = 2400
) -> AsyncIterator[Scenario]:
    """Create a topic and write to it, so many records a second, until the block is left."""
    await cluster.client.create_topic(topic)
    count = topic.partitions or len(topic.replica_assignment or ())
    async with (
        Load(cluster.bootstrap, topic.name, count, rate, label=label) as load,
        Observer(cluster) as observer,
    ):
        await load.progress()
        running = Scenario(cluster, load, observer)
        try:
            yield running
        except (Exception, pytest.fail.Exception) as error:
            await leave_timeline(running, error)
            raise


@asynccontextmanager
async def scenario(
    *,
    controllers: int = 1,
    zookeeper_members: int = 1,
    partitions: int = 6,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Scenario]:
    """Run a loaded cluster; on leaving, heal it and check every invariant."""
    async with (
        running_cluster(
            controllers=controllers, zookeeper_members=zookeeper_members, settings=settings
        ) as cluster,
        loaded(cluster, NewTopic(TOPIC, partitions, 3)) as running,
    ):
        yield running
        await running.verify()


@dataclass(slots=True)
class LinkedScenario(Scenario):
    """A scenario whose processes talk over links that can be cut.

    Who leads is asked of ZooKeeper: a broker that is cut off tells clients what it knows.
    """

    links: Links = field(kw_only=True)

    async def states(self) -> dict[int, PartitionState]:
        """Return the state of each partition."""
        found = (await self.view()).states
        return {
            number: state for (topic, number), (state, _) in found.items() if topic == self.topic
        }

    async def leader(self, partition: int = 0) -> str:
        """Return the name of a partition's leader."""

        async def leads() -> str | None:
            number = (await self.states())[partition].leader
            return f"broker-{number}" if number >= 0 else None

        return await wait_until(leads, f"{self.topic}-{partition} has a leader")

    async def follower(self, partition: int = 0) -> str:
        """Return the name of some ISR member that follows a partition."""
        state = (await self.states())[partition]
        return f"broker-{next(one for one in state.isr if one != state.leader)}"

    async def led_by(self, broker: str) -> list[int]:
        """Return the partitions that a broker leads."""
        states = await self.states()
        return [number for number, one in states.items() if f"broker-{one.leader}" == broker]

    async def moved_away(self, broker: str, partitions: Sequence[int]) -> None:
        """Wait until somebody else leads each partition that a broker led."""
        assert partitions, f"{broker} led nothing, so its loss moves nothing"

        async def moved() -> bool:
            leaders = {number: one.leader for number, one in (await self.states()).items()}
            return all(leaders[number] not in {-1, int(broker[7:])} for number in partitions)

        await wait_until(moved, f"{broker} leads none of {partitions}")

    async def full_isr(self) -> None:
        """Wait until every replica is in sync."""

        async def full() -> bool:
            states = (await self.states()).values()
            return all(state.leader >= 0 and len(state.isr) == 3 for state in states)

        await wait_until(full, f"{self.topic} has 3 in sync everywhere")


@asynccontextmanager
async def linked_scenario(
    *, controllers: int = 1, settings: Mapping[str, str] | None = None, partitions: int = 6
) -> AsyncIterator[LinkedScenario]:
    """Run a loaded cluster on links; on leaving, heal it and check every invariant."""
    session = {"zookeeper.session.timeout.ms": str(LINKED_SESSION_MS)}
    async with (
        running_cluster(
            controllers=controllers, settings={**session, **(settings or {})}
        ) as cluster,
        linked(cluster) as links,
        loaded(cluster, NewTopic(TOPIC, partitions, 3)) as running,
    ):
        yield LinkedScenario(running.cluster, running.load, running.observer, links=links)
        links.heal()
        await running.verify()
