"""One group's decisions, case by case: who is stopped, who is kept, who is refused."""

from __future__ import annotations

from typing import Any

import pytest

from leadline_client.channel import Error, Hello, Start, Stop
from leadline_client.errors import (
    GroupFull,
    GroupNotEmpty,
    InvalidSubscription,
    LeadlineError,
    PartitionNotOwned,
    StaleGeneration,
    UnknownMember,
)
from leadline_client.wire import GroupState, TopicPartition
from leadline_common.zk.client import MAX_REQUEST_BYTES
from leadline_coordinator.adapters.group_values import member_values
from leadline_coordinator.domain.commits import check_owned, committing_member
from leadline_coordinator.domain.group import (
    TRANSITIONS,
    Group,
    IllegalGroupTransition,
    check_transition,
)
from leadline_coordinator.domain.members import GroupLimits
from leadline_coordinator.domain.membership import GroupMembership
from leadline_coordinator.domain.rebalance import why_necessary
from leadline_coordinator.domain.records import GroupRecord, MemberSubscription
from leadline_coordinator.domain.subscriptions import (
    TopicSubscriptionIndex,
    subscribed_topics,
    subscription_of,
)
from tests.unit.coordinator.world import Consumer, World


class Recorder(World):
    """A world that remembers what was sent, beginning when told."""

    def __init__(self, partitions: int = 6) -> None:
        super().__init__(1, {"t": partitions})
        self.sent: list[tuple[str, Any]] = []

    def put(self, link: Any, lane: str, frame: Any) -> None:
        if lane == "down":
            self.sent.append((link.consumer.name, frame))
        super().put(link, lane, frame)

    def kinds(self, kind: type[Any]) -> list[tuple[str, Any]]:
        return [(name, frame) for name, frame in self.sent if isinstance(frame, kind)]

    @property
    def group(self) -> Group:
        assert self.coordinator is not None
        return self.coordinator.group


OWN = "the secret of every member in these tests"


def group_of(count: int, **hello: Any) -> tuple[Recorder, list[Consumer]]:
    """A settled group of so many consumers."""
    world = Recorder()
    for _ in range(count):
        world.join(**({"topics": ("t",)} | hello))
    world.run(1_000)
    world.settled()
    world.sent.clear()
    return world, world.consumers


def test_the_ownership_is_compared_as_the_design_says() -> None:
    plan = {"a": [TopicPartition("t", 0)], "b": [TopicPartition("t", 1)]}
    owners = {TopicPartition("t", 0): "a", TopicPartition("t", 1): "b"}

    assert why_necessary(owners, plan) is None
    assert "added again" in (why_necessary(owners, plan, {TopicPartition("t", 1)}) or "")
    assert "no ownership" in (why_necessary({}, plan) or "")
    assert "nobody" in (why_necessary({TopicPartition("t", 0): "a"}, plan) or "")
    assert "any longer" in (why_necessary(owners | {TopicPartition("t", 2): "a"}, plan) or "")
    assert "does not match" in (
        why_necessary({TopicPartition("t", 0): "b", TopicPartition("t", 1): "a"}, plan) or ""
    )


def test_a_cooperative_group_stops_only_what_moves() -> None:
    world, consumers = group_of(2, protocol="cooperative", assignor="sticky")

    world.join(topics=("t",), protocol="cooperative", assignor="sticky")
    world.run(1_000)

    stops = world.kinds(Stop)
    assert sum(len(part) for _, stop in stops for _, part in stop.partitions) == 2
    assert all(len(consumer.owned) == 2 for consumer in consumers)


def test_an_eager_group_stops_everything() -> None:
    world, _ = group_of(2, assignor="sticky")

    world.join(topics=("t",), assignor="sticky")
    world.run(1_000)

    stops = world.kinds(Stop)
    assert sum(len(part) for _, stop in stops for _, part in stop.partitions) == 6


def test_a_new_coordinator_moves_nothing_when_nothing_has_changed() -> None:
    world, consumers = group_of(3)
    before = {consumer.name: set(consumer.owned) for consumer in consumers}
    generation = world.group.generation

    world.fail_over(50)
    world.run(2_000)

    world.settled()
    assert {consumer.name: consumer.owned for consumer in consumers} == before
    assert world.group.generation == generation
    assert not world.kinds(Stop)


def test_a_static_member_that_restarts_gets_its_part_and_stops_nobody() -> None:
    world = Recorder()
    for number in range(3):
        world.join(topics=("t",), instance_id=f"i{number}")
    world.run(1_000)
    part = set(world.consumers[1].owned)
    world.sent.clear()

    world.kill(world.consumers[1])
    world.run(400)
    back = world.join(topics=("t",), instance_id="i1")
    world.run(600)

    world.settled()
    assert back.owned == part
    assert not world.kinds(Stop)
    assert {name for name, _ in world.kinds(Start)} == {back.name}


def test_of_two_consumers_with_one_instance_id_the_first_is_fenced() -> None:
    world, consumers = group_of(2)
    twin = world.join(topics=("t",), instance_id="twin", instance_secret=OWN)
    world.run(600)
    other = world.join(topics=("t",), instance_id="twin", instance_secret=OWN)
    world.sent.clear()
    world.run(100)

    fenced = [frame for name, frame in world.kinds(Error) if name == twin.name]
    assert [frame.error_code for frame in fenced] == [40973]
    assert len(consumers) == 4
    assert other.member in world.group.members


def test_who_does_not_answer_a_start_is_put_out_after_the_retries() -> None:
    world, consumers = group_of(2)
    deaf = world.join(topics=("t",))
    deaf.answers_starts = False
    deaf_member = None
    for _ in range(200):
        world.run(10)
        deaf_member = deaf_member or deaf.member
        if world.group.last_error:
            break

    assert "no answer to Start after 4 retries" in (world.group.last_error or "")
    assert deaf_member not in world.group.members
    errors = [frame for name, frame in world.kinds(Error) if name == deaf.name]
    assert errors[0].error_code == 40976
    assert len(world.kinds(Start)) >= 5
    assert {consumer.member for consumer in consumers[:2]} <= set(world.group.members)


def refused(group: Group, error: type[LeadlineError], **hello: Any) -> None:
    before = group.record()
    with pytest.raises(error):
        GroupMembership(group).on_hello(Hello(**hello), 99, "new", 5_000, new_secret=OWN)
    assert group.record() == before


def test_what_makes_no_sense_is_refused_and_changes_nothing() -> None:
    world, _ = group_of(1, assignor="sticky")
    group = world.group

    refused(group, InvalidSubscription, assignor="sticky")
    refused(group, InvalidSubscription, assignor="sticky", topics=None, pattern=None)
    refused(group, InvalidSubscription, assignor="sticky", topics=(), pattern="t")
    for counts in ((("u", 2),), (("t", 0),), (("t", 1_001),), (("t", 2), ("t", 3))):
        refused(group, InvalidSubscription, assignor="sticky", topics=("t",), topic_threads=counts)
    refused(group, InvalidSubscription, assignor="sticky", topics=())
    refused(group, InvalidSubscription, assignor="sticky", topics=("t" * 249,) * 1_000)
    refused(group, InvalidSubscription, assignor="sticky", pattern="(")
    refused(group, InvalidSubscription, assignor="sticky", pattern="(.{1,50}){1,20}")
    refused(group, InvalidSubscription, assignor="sticky", pattern="\ud800")
    refused(group, InvalidSubscription, assignor="sticky", topics=("\ud800",))
    refused(group, InvalidSubscription, assignor="sticky", topics=("t",), client_id="\ud800")
    refused(group, InvalidSubscription, assignor="sticky", topics=("t",), instance_id="a\nb")
    refused(group, InvalidSubscription, assignor="sticky", topics=("t",), threads=0)
    refused(group, InvalidSubscription, assignor="range", topics=("t",))
    refused(group, InvalidSubscription, assignor="sticky", protocol="cooperative", topics=("t",))


def test_a_full_group_takes_nobody_else() -> None:
    group = Group("g", 1, GroupLimits(max_size=1), {}, {})
    members = GroupMembership(group)
    members.on_hello(Hello(topics=("t",)), 1, "a", 0, new_secret=OWN)

    refused(group, GroupFull, topics=("t",))
    members.on_hello(Hello(topics=("t",), member="a", secret=OWN), 2, "b", 10, new_secret=OWN)

    assert list(group.members) == ["a"]


def test_only_the_owner_commits_under_the_generation_that_it_was_told() -> None:
    world, (first, second) = group_of(2)
    group, member = world.group, first.member
    mine = TopicPartition(*next(iter(first.owned)))
    other = TopicPartition(*next(iter(second.owned)))

    secret = first.secret
    found = committing_member(group, member, group.generation, 1, secret)
    check_owned(found, mine)

    with pytest.raises(PartitionNotOwned):
        check_owned(found, other)
    with pytest.raises(StaleGeneration):
        committing_member(group, member, group.generation - 1, 1, secret)
    with pytest.raises(StaleGeneration):
        committing_member(group, member, group.generation, 2, secret)
    with pytest.raises(UnknownMember):
        committing_member(group, "nobody", group.generation, 1, secret)
    with pytest.raises(GroupNotEmpty):
        committing_member(group, None, None, None, None)


def test_defect_18_a_consumer_subscribes_to_topics_and_a_pattern_with_counts_per_topic() -> None:
    hello = Hello(topics=("orders", "audit"), pattern="logs-.*", topic_threads=(("orders", 4),))
    subscription = subscription_of(hello)
    assert subscribed_topics(subscription, ["audit", "logs-eu", "orders", "other"]) == (
        *("audit", "logs-eu", "orders"),
    )
    assert subscription.thread_count == 4
    index = TopicSubscriptionIndex()
    index.update("g", [subscription])
    concerned = ("orders", "audit", "logs-eu", "other")
    assert [bool(index.groups_of(topic)) for topic in concerned] == [True, True, True, False]


def test_defect_18_a_start_splits_each_topic_among_its_own_threads() -> None:
    world = Recorder(4)
    world.topics["u"] = 2
    world.join(topics=("t",), pattern="u", topic_threads=(("t", 2),))
    world.run(1_000)
    _, start = world.kinds(Start)[-1]
    assert start.threads == ((("t", (0, 1)), ("u", (0, 1))), (("t", (2, 3)),))


@pytest.mark.parametrize("character", ["a", '"', "名", "😀"])
def test_a_subscription_that_is_accepted_fits_into_one_request_to_zookeeper(character: str) -> None:
    """Its topics are written twice: those of all, and those with a number of threads."""
    count = 100_000 // (5 + 5 * len(character.encode()))
    topics = tuple(f"{number:05}" + 5 * character for number in range(count + 1))
    counts = tuple((topic, 1_000) for topic in topics)

    subscription = subscription_of(Hello(topics=topics[:-1], topic_threads=counts[:-1]))

    record = GroupRecord("g", "range", "eager", 1, {"m": subscription})
    assert len(member_values(record)["m"]) < MAX_REQUEST_BYTES // 2
    with pytest.raises(InvalidSubscription, match="topics: "):
        subscription_of(Hello(topics=topics, topic_threads=counts))


def test_a_pattern_stands_for_whole_names_and_never_for_internal_topics() -> None:
    topics = ["orders", "orders-eu", "old-orders", "__offsets"]

    assert subscribed_topics(MemberSubscription(pattern="orders.*"), topics) == (
        "orders",
        "orders-eu",
    )
    assert subscribed_topics(MemberSubscription(pattern="orders"), topics) == ("orders",)
    assert subscribed_topics(MemberSubscription(pattern=".*"), topics) == (
        "old-orders",
        "orders",
        "orders-eu",
    )


def test_a_pattern_that_backtracks_elsewhere_is_answered_at_once() -> None:
    assert subscribed_topics(MemberSubscription(pattern="(a|aa)+$"), ["a" * 200 + "b"]) == ()


def test_groups_are_found_by_the_topics_that_they_asked_for() -> None:
    subscription_index = TopicSubscriptionIndex()
    subscription_index.update("by-name", [MemberSubscription(topics=("orders", "returns"))])
    subscription_index.update(
        "by-pattern", [MemberSubscription(pattern="ord.*"), MemberSubscription(topics=("other",))]
    )

    assert subscription_index.groups_of("orders") == {"by-name", "by-pattern"}
    assert subscription_index.groups_of("other") == {"by-pattern"}

    subscription_index.update("by-name", [MemberSubscription(topics=("returns",))])
    subscription_index.update("by-pattern", [])

    assert subscription_index.groups_of("orders") == set()
    assert subscription_index.groups_of("returns") == {"by-name"}
    assert subscription_index.consumer_groups_per_topic == {"returns": {"by-name"}}


def test_a_group_goes_from_state_to_state_as_the_table_says() -> None:
    for before in GroupState:
        check_transition(before, before)
        for after in set(GroupState) - {before} - TRANSITIONS[before]:
            with pytest.raises(IllegalGroupTransition):
                check_transition(before, after)
