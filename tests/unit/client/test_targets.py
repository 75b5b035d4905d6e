"""Who receives a request: any broker, a replica to read from, the group coordinator."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from leadline_client.cache import MetadataCache
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    LeaderHint,
    LeadlineError,
    NotCoordinator,
    NotLeader,
    OffsetNotAvailable,
    Unreachable,
)
from leadline_client.targets import AnyBroker, GroupCoordinator, PartitionReplica
from leadline_client.wire import BrokerInfo, Metadata, PartitionInfo, TopicInfo

RACKS = {1: "r1", 2: "r2", 3: "r2"}


def named(epoch: int, url: str = "http://c") -> dict[str, object]:
    return {"brokers": [], "coordinator": {"id": 1, "url": url, "epoch": epoch}}


def test_the_errors_for_no_broker_and_no_coordinator_differ() -> None:
    target = GroupCoordinator()
    target.apply_lookup(None)
    assert isinstance(target.unavailable(), AllKnownBrokersNotAvailable)
    target.apply_lookup({"brokers": [], "coordinator": None})
    assert isinstance(target.unavailable(), CoordinatorNotAvailable)


def test_a_former_coordinator_is_not_used_again() -> None:
    target = GroupCoordinator()
    target.apply_lookup(named(2, "http://two"))
    target.apply_lookup(named(1, "http://one"))
    assert target.address() == "http://two"
    assert not target.on_error(NotCoordinator("elsewhere"))
    target.apply_lookup(named(1, "http://one"))
    assert target.address() is None
    target.apply_lookup(named(3, "http://three"))
    assert target.address() == "http://three"


def cache_of(isr: tuple[int, ...] = (1, 2, 3), epoch: int = 4) -> MetadataCache:
    cache = MetadataCache()
    brokers = {n: BrokerInfo(n, f"http://b{n}", rack, 1) for n, rack in RACKS.items()}
    row = PartitionInfo(0, 1, epoch, isr, (1, 2, 3))
    cache.update(Metadata("c", 1, None, brokers, {"t": TopicInfo("t", "id", (row,))}))
    return cache


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def replica(
    rack: str | None = None,
    random: float = 0.0,
    isr: tuple[int, ...] = (1, 2, 3),
    clock: Clock | None = None,
) -> PartitionReplica:
    return PartitionReplica(cache_of(isr), "t", 0, rack=rack, clock=clock or Clock(), random=random)


def test_defect_18_clients_begin_at_a_random_broker() -> None:
    known = ["http://a", "http://b", "http://c"]
    random = Random(7).random
    first = Counter(AnyBroker(known, MetadataCache(), random).address() for _ in range(300))
    assert set(first) == set(known)
    assert min(first.values()) > 50


def test_defect_18_after_the_first_answer_the_start_is_still_spread() -> None:
    random = Random(7).random
    first = {AnyBroker(["http://a"], cache_of(), random).address() for _ in range(50)}
    assert first >= {"http://b1", "http://b2", "http://b3"}


def test_defect_18_a_reader_takes_an_in_sync_replica_of_its_rack_first() -> None:
    assert {replica("r2", n / 10).address() for n in range(10)} == {"http://b2", "http://b3"}
    assert replica("r2", 0.9, isr=(1, 2)).address() == "http://b2"
    assert {replica("r9", n / 10).address() for n in range(10)} == {
        "http://b1",
        "http://b2",
        "http://b3",
    }
    assert replica("r2", isr=()).address() == "http://b1", "the leader, if nobody else"
    assert replica("r2").params() == {"leader_epoch": "4", "replica": "any"}


@pytest.mark.parametrize(
    ("error", "at_once"),
    [(OffsetNotAvailable(""), True), (NotLeader(""), True), (Unreachable(""), False)],
    ids=lambda value: type(value).__name__,
)
def test_defect_18_a_replica_that_fails_is_avoided_for_a_while(
    error: LeadlineError, at_once: bool
) -> None:
    clock = Clock()
    target = replica("r1", clock=clock)
    assert target.address() == "http://b1"
    assert target.on_error(error) is at_once
    assert target.address() == "http://b2"
    clock.now_s = 31.0
    assert target.address() == "http://b1"


def test_defect_18_a_new_leader_epoch_does_not_cost_a_reader_its_replica() -> None:
    target = replica("r2")
    hint = LeaderHint(3, "http://b3", 5)
    assert target.on_error(FencedLeaderEpoch("", leader=hint))
    assert target.address() == "http://b2"
    assert target.params()["leader_epoch"] == "5"


def test_defect_18_the_leader_is_asked_last_and_its_refusal_counts() -> None:
    target = replica()
    for _ in RACKS:
        target.on_error(OffsetNotAvailable(""))
    assert target.address() == "http://b1"
    assert not target.on_error(OffsetNotAvailable(""))
