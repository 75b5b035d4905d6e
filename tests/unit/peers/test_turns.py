"""Who takes part in what, in which order, and what becomes of a side that fails."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from peers import command, data_path
from peers.clients.membership import is_settled
from peers.clients.work import Stopwatch, Work
from peers.machine import _filesystem
from peers.processes import Client, ClientFailed
from peers.report.samples import Metric
from peers.sequences.case import Case, latencies, rates, work
from peers.sequences.sizes import QUICK, Sizes
from peers.systems.system import System

COUNT = Metric("count", "records")


@dataclass
class FakeSystem:
    """Remembers its topics."""

    name: str
    bootstrap: str = ""
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    async def create_topic(self, name: str, _: int, *, configs: dict[str, str]) -> None:
        self.topics[name] = configs

    async def delete_topic(self, name: str) -> None:
        self.deleted.append(name)


class FakeClient:
    """Remembers what it did in a list that all share, and fails if told to."""

    def __init__(self, name: str, done: list[tuple[str, str]], *, fails: bool = False) -> None:
        self.name = name
        self._done = done
        self._fails = fails

    async def do(self, task: str, _: str, work: Work) -> Stopwatch:
        if self._fails:
            raise ClientFailed("no")
        self._done.append((self.name, task))
        return Stopwatch(1.0, 1.0, work.records, 0)


def case(task: str = "produce", **more: Any) -> Case:
    return Case("s", "c", task, work(12, 1), lambda watch: {COUNT: watch.records}, **more)


def everyone(*clients: FakeClient) -> list[data_path.Side]:
    kafka, leadline = FakeSystem("kafka"), FakeSystem("leadline")
    return data_path.sides(
        cast("System", kafka), cast("System", leadline), cast("list[Client]", clients)
    )


async def test_the_sides_take_turns_in_each_round_and_warming_up_does_not_count() -> None:
    done: list[tuple[str, str]] = []
    sides = everyone(FakeClient("leadline", done), FakeClient("aiokafka", done))
    sizes = Sizes(data_rounds=2, warm_up_rounds=1)

    found, failures = await data_path.run(case(), sides, sizes, lambda _: None)

    turn = [("aiokafka", "produce"), ("aiokafka", "produce"), ("leadline", "produce")]
    assert done == turn * 3
    assert [(one.side, one.values) for one in found] == [
        ("kafka-sync aiokafka", (12, 12)),
        ("kafka aiokafka", (12, 12)),
        ("leadline leadline", (12, 12)),
    ]
    assert failures == []


def test_a_kafka_whose_brokers_speak_tls_has_another_name() -> None:
    kafka, leadline = cast("System", FakeSystem("kafka")), cast("System", FakeSystem("leadline"))
    clients = cast("list[Client]", [FakeClient("leadline", []), FakeClient("aiokafka", [])])

    found = data_path.sides(kafka, leadline, clients, tls=True)

    assert [side.label for side in found] == ["kafka-sync+tls", "kafka+tls", "leadline"]


async def test_every_side_has_a_topic_of_its_own_with_its_durability() -> None:
    sides = everyone(FakeClient("leadline", []), FakeClient("aiokafka", []))
    kafka = cast("FakeSystem", sides[0].system)

    await data_path.run(case(), sides, QUICK, lambda _: None)

    assert list(kafka.topics.values()) == [{"flush.messages": "1"}, {}]
    assert kafka.deleted == list(kafka.topics)


async def test_a_side_that_fails_is_reported_once_and_stops_no_other() -> None:
    sides = everyone(FakeClient("leadline", []), FakeClient("aiokafka", [], fails=True))

    found, failures = await data_path.run(case(), sides, QUICK, lambda _: None)

    assert [one.system for one in found] == ["leadline"]
    assert failures == ["c, kafka-sync: no", "c, kafka: no"]


async def test_what_is_read_is_written_once_before_the_rounds() -> None:
    done: list[tuple[str, str]] = []
    sides = everyone(FakeClient("leadline", done), FakeClient("aiokafka", done))

    found, _ = await data_path.run(case("consume", reads=True), sides, QUICK, lambda _: None)

    assert done[:2] == [("aiokafka", "produce"), ("leadline", "produce")]
    assert {task for _, task in done[2:]} == {"consume"}
    assert [one.system for one in found] == ["kafka", "leadline"]


def test_a_client_takes_part_only_in_what_it_can_do() -> None:
    sides = everyone(FakeClient("leadline", []), FakeClient("confluent", []))

    taking = data_path.taking_part(case(clients=frozenset({"leadline"})), sides)

    assert [side.client.name for side in taking] == ["leadline"]


def test_rates_and_latencies_are_of_the_measured_time() -> None:
    watch = Stopwatch(2.0, 0.5, 1_000, 4_000_000, [0.001, 0.002, 0.009])

    assert list(rates(watch).values()) == [0.5, 2.0, 500.0]
    assert list(latencies(watch).values()) == [2.0, 9.0]


@pytest.mark.parametrize(
    ("owned", "settled"),
    [
        ([{0, 1}, {2}], True),
        ([{0, 1}, {1, 2}], False),
        ([{0, 1}, set()], False),
        ([{0}, {2}], False),
        ([{0, 1, 2}], False),
        ([{0, 1, 2}, set()], False),
    ],
    ids=["settled", "two-owners", "lost", "without-owner", "absent", "idle"],
)
def test_a_group_is_settled_once_each_partition_has_one_owner(
    owned: list[set[int]], settled: bool
) -> None:
    members = [frozenset(("t", number) for number in one) for one in owned]

    assert is_settled(members, 2, 3) is settled


def test_arguments_change_the_amounts_of_a_quick_or_a_full_run() -> None:
    parser = command._parser()

    assert command.sizes_of(parser.parse_args([])) == Sizes()
    assert command.sizes_of(parser.parse_args(["--quick"])) == QUICK
    changed = command.sizes_of(parser.parse_args(["--quick", "--members", "1000"]))
    assert (changed.members, changed.topics) == (1_000, QUICK.topics)


def test_an_unknown_sequence_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command._names("produce,group") == ("produce", "group")
    with pytest.raises(argparse.ArgumentTypeError, match="produc"):
        command._names("produc")
    with pytest.raises(SystemExit):
        command.main(["--only", "produc"])
    assert "produc" in capsys.readouterr().err


def test_the_filesystem_is_that_of_the_longest_mount_point(tmp_path: Path) -> None:
    mounts = f"a / ext4 rw 0 0\nb {tmp_path} tmpfs rw 0 0\nc {tmp_path}-other xfs rw 0 0\n"

    assert _filesystem(mounts, tmp_path / "below") == "tmpfs"
    assert _filesystem(mounts, Path("/")) == "ext4"
