"""What watches a scenario notes faults, and finds what is planted on brokers' disks and answers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_broker.adapters.log.layout import PartitionIdentity, write_identity
from leadline_client import batches
from leadline_client.batch_header import header_at
from leadline_client.payloads import OutgoingRecord
from leadline_common.znodes import AuditEntry, StateChange, TopicAssignment
from leadline_controller.domain.history import ASSIGNMENT
from tests.support.checks.anomalies import Anomaly, AnomalyKind
from tests.support.checks.invariants import Findings
from tests.support.checks.zk_history import ZkView
from tests.support.faults import scenario
from tests.support.faults.load import Load
from tests.support.faults.observer import Observer
from tests.support.faults.scenario import Scenario, leave_timeline
from tests.support.services.cluster import Cluster

TOPIC_ID = "0123456789abcdef0123456789abcdef"


def stored(base_offset: int, *values: str) -> bytes:
    data = bytearray(batches.encode([OutgoingRecord(value.encode()) for value in values], now_ms=1))
    batches.stamp(data, header_at(data), base_offset, 0)
    return bytes(data)


class OneBroker:
    """The parts of a cluster that an observer asks, with one broker and one replica of two."""

    def __init__(self, root: Path) -> None:
        self.root = root / "data"
        self.replica = self.root / "t-0"
        self.replica.mkdir(parents=True)
        write_identity(self.replica, PartitionIdentity.checked("t", TOPIC_ID, 0))
        (self.replica / f"{0:020d}.log").write_bytes(stored(0, "a", "b"))
        self.log_path = root / "broker-1.log"
        self.row = {"topic": "t", "topic_id": TOPIC_ID, "partition": 0}
        self.row |= {"high_watermark": 2, "log_end_offset": 2}
        self.watchers: list[Any] = []
        self.supervisor = SimpleNamespace(
            layout=SimpleNamespace(brokers=[SimpleNamespace(name="broker-1", id=1)]),
            children={"broker-1": SimpleNamespace(name="broker-1", pid=os.getpid(), running=True)},
        )

    def service(self, _: str) -> object:
        return SimpleNamespace(log_dir=str(self.root))

    def child(self, _: str) -> object:
        return SimpleNamespace(log_path=self.log_path)

    async def replicas(self, _: str) -> list[Mapping[str, Any]]:
        return [dict(self.row)]

    def zookeeper(self) -> object:
        raise ConnectionRefusedError("no ZooKeeper here")

    def tell(self, action: str, target: str = "broker-1") -> None:
        for watcher in self.watchers:
            watcher(action, target)

    def log(self, **fields: object) -> None:
        with self.log_path.open("a") as log:
            log.write(json.dumps(fields) + "\n")


@pytest.fixture
def one(tmp_path: Path) -> OneBroker:
    """A cluster of one broker."""
    return OneBroker(tmp_path)


def observer_of(one: OneBroker) -> Observer:
    return Observer(cast("Cluster", one))


def view() -> ZkView:
    """Return what ZooKeeper says: created long ago, always led by broker 1."""
    change = StateChange("t", 0, "new", None, (1, 0, (1,)), 0)
    created = AuditEntry(
        time=0,
        cause="c",
        actor="controller-1",
        kind="topic_created",
        resource={"topic": "t", "topic_id": TOPIC_ID},
        after={ASSIGNMENT: {"0": [1]}},
        changes=(change,),
    )
    topics = {"t": TopicAssignment(TOPIC_ID, {0: (1,)})}
    return ZkView(None, 0, {}, {}, topics, {}, {}, [], [created], [0])


async def test_a_healthy_broker_has_no_problem(one: OneBroker) -> None:
    async with observer_of(one) as observer:
        await observer.sample()
        assert await observer.problems(view()) == []
        assert observer.processes[0].pid == os.getpid()
    assert one.watchers == []


async def test_a_broker_that_never_answered_is_no_pass(one: OneBroker) -> None:
    one.replicas = lambda _: _never()  # type: ignore[method-assign] # the planted fault
    assert "void: broker-1" in (await observer_of(one).problems(view()))[0]


async def _never() -> list[Mapping[str, Any]]:
    raise TimeoutError


async def test_a_lost_directory_is_found_and_one_set_aside_is_not(one: OneBroker) -> None:
    observer = observer_of(one)
    await observer.sample()
    aside = one.root / f"t-0.{TOPIC_ID}-stray"
    one.replica.rename(aside)
    assert await observer.problems(view()) == []
    shutil.rmtree(aside)
    assert await observer.problems(view()) == [f"I13: broker 1: partition 0 of {TOPIC_ID} is gone"]


async def test_a_log_end_below_an_earlier_high_watermark_is_found(one: OneBroker) -> None:
    observer = observer_of(one)
    await observer.sample()
    one.row["log_end_offset"] = 1
    # A sample counts as later from the next millisecond on.
    for _ in range(1000):
        await observer.sample()
        if observer.replicas[-1].began_ms > observer.replicas[0].ended_ms:
            break
    found = await observer.problems(view())
    assert "I8: broker 1, in the ISR of t-0, ends at 1" in found[0]


@pytest.mark.parametrize(("cut_offset", "is_right"), [(2, True), (1, False), (None, False)])
async def test_what_recovery_reports_is_compared_with_the_disk(
    one: OneBroker, cut_offset: int | None, is_right: bool
) -> None:
    async with observer_of(one) as observer:
        one.log(event="invalid tail truncated", directory="t-0", cut_offset=0, cut_bytes=1)
        with (one.replica / f"{0:020d}.log").open("ab") as segment:
            segment.write(b"garbage")
        one.tell("restart")
        one.log(event="logs opened")
        if cut_offset is not None:
            row = {"directory": "t-0", "cut_offset": cut_offset, "cut_bytes": 7, "reason": "short"}
            one.log(event="invalid tail truncated", **row)
        found = await observer.problems(view())
    assert (found == []) == is_right
    assert all(problem.startswith("I16: broker-1") for problem in found)


async def test_faults_are_noted_and_resuming_what_runs_is_none(one: OneBroker) -> None:
    async with observer_of(one) as observer:
        for action in ("resume", "kill", "restart", "freeze", "resume", "resume"):
            one.tell(action)
        noted = [fault.action for fault in observer.faults]
    assert noted == ["kill", "restart", "freeze", "resume"]


async def test_a_failed_scenario_leaves_a_page_that_names_the_anomaly(
    one: OneBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(scenario, "TIMELINES", tmp_path / "timelines")
    load = Load("http://127.0.0.1:1", "orders", 1)
    load.history.ack_batch(load.history.send_batch(["v"], ("orders", 0), "0", 1.0), 0, 2.0)
    lost = Anomaly(AnomalyKind.LOST, ("orders", 0), "v", "planted", 2.0, "producer 0")
    running = Scenario(cast("Cluster", one), load, findings=Findings(["I13: planted too"], [lost]))

    await leave_timeline(running, AssertionError("2 violations:\nmany"))

    (path,) = (tmp_path / "timelines").iterdir()
    page = path.read_text(encoding="utf-8")
    for part in ("lost", "planted", "I13: planted too", "AssertionError: 2 violations", "mark-1"):
        assert part in page
    assert "ZooKeeper could not be read" in page
    assert str(path) in capsys.readouterr().err
    await load.stop()
