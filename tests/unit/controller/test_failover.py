"""Decisions after failures and starts of brokers, new topics and controller failovers."""

from __future__ import annotations

from itertools import chain

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.znodes import BrokerRegistration, PartitionState, TopicAssignment
from leadline_controller.domain.cluster import (
    NO_NODE,
    BrokerDown,
    BrokerUp,
    ClusterImage,
    ClusterPolicy,
    ConfigsSet,
    DeletionPending,
    StateSet,
    TopicSet,
)
from leadline_controller.domain.controlled_shutdown import (
    assess_stop_risks,
    decide_controlled_shutdown,
    partitions_hosted_by,
)
from leadline_controller.domain.draining import move_leaders_off
from leadline_controller.domain.failover import (
    StateDecision,
    elect_preferred,
    elect_unclean,
    init_leaders,
    on_broker_change,
    on_controller_failover,
    on_topic_change,
)
from tests.unit.controller.images import (
    NAME,
    TOPIC,
    broker,
    brokers,
    carry_out,
    cluster,
    state,
    the_state,
)

AR = (1, 2, 3)


def only(decisions: list[StateDecision]) -> StateDecision:
    assert len(decisions) == 1
    return decisions[0]


def meet(image: ClusterImage, live: dict[int, BrokerRegistration], zxid: int = 50) -> None:
    """Apply the live brokers to the image, as the engine does after deciding."""
    gone = [BrokerDown(b) for b in image.brokers if b not in live]
    image.apply([*gone, *(BrokerUp(b, zxid) for b in live.values())])


def test_leader_fails() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    change = on_broker_change(image, brokers({2, 3}))
    assert change.failed == (1,)
    decision = only(change.decisions)
    assert decision.after == PartitionState(2, 5, (2, 3), 7)
    assert (decision.version, decision.reason) == (3, "isr")


def test_follower_fails_and_the_leader_stays() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    decision = only(on_broker_change(image, brokers({1, 3})).decisions)
    assert decision.after == PartitionState(1, 5, (1, 3), 7)
    assert decision.reason == "unchanged"


def test_a_replica_outside_the_isr_fails_without_a_write() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, (1, 2))})
    assert on_broker_change(image, brokers({1, 2})).decisions == []


def test_no_member_is_live_keeps_the_isr_and_the_first_to_return_leads() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, (1, 2))})
    live = brokers({3})
    change = on_broker_change(image, live)
    assert only(change.decisions).after == PartitionState(NO_LEADER, 5, (1, 2), 7)
    meet(image, live)
    carry_out(image, change.decisions)
    assert on_broker_change(image, live).decisions == []
    live = brokers({2}, incarnation=1) | live
    back = only(on_broker_change(image, live).decisions)
    assert back.after == PartitionState(2, 6, (2,), 7, eligible=(1,))


def test_defect_07_replicas_being_added_do_not_raise_the_floor() -> None:
    """Its leader commits with an ISR of one, so that no former member stays eligible."""
    image = cluster(AR, {0: (2, 1)}, {0: state(1, (1, 2))})
    image.apply([TopicSet(TOPIC, TopicAssignment("id-1", {0: (2, 1)}, adding={0: (2,)}), 1, 11)])

    decision = only(on_broker_change(image, brokers({1, 3})).decisions)

    assert (decision.after.isr, decision.after.eligible) == ((1,), ())


def test_defect_07_eligible_replicas_hold_everything_until_the_leader_has_dropped_them() -> None:
    """Even if min.insync.replicas is lower by now: the leader commits nothing before."""
    image = cluster(AR, {0: AR}, {0: PartitionState(1, 4, (1, 2), 6, eligible=(3,))})
    image.apply([ConfigsSet(TOPIC, {"min.insync.replicas": "2"})])

    decision = only(on_broker_change(image, brokers({1, 3})).decisions)

    assert (decision.after.isr, decision.after.eligible) == ((1,), (2, 3))


def test_a_replica_outside_the_isr_leads_only_if_the_topic_allows_it() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, (1,))})
    image.apply([ConfigsSet(TOPIC, {"unclean.leader.election.enable": "true"})])
    decision = only(on_broker_change(image, brokers({2, 3})).decisions)
    assert decision.after.leader == 2
    assert decision.after.isr == (2,)
    assert decision.reason == "unclean"


def test_the_cluster_may_allow_unclean_elections_and_a_topic_forbid_them() -> None:
    policy = ClusterPolicy(unclean_leader_election=True)
    image = cluster(AR, {0: AR}, {0: state(1, (1,))}, policy=policy)
    assert only(on_broker_change(image, brokers({2})).decisions).reason == "unclean"
    image.apply([ConfigsSet(TOPIC, {"unclean.leader.election.enable": "false"})])
    assert only(on_broker_change(image, brokers({2})).decisions).reason == "none"


def test_a_bounced_leader_failed_and_then_started() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    change = on_broker_change(image, brokers({2, 3}) | {1: broker(1, incarnation=1)})
    assert (change.bounced, change.granted) == ((1,), (1,))
    assert only(change.decisions).after == PartitionState(2, 5, (2, 3), 7)


def test_a_bounced_last_member_leads_again_under_a_new_epoch() -> None:
    image = cluster({1}, {0: AR}, {0: state(1, (1,))})
    live = brokers({1}, incarnation=1)
    change = on_broker_change(image, live)
    assert only(change.decisions).after == PartitionState(1, 5, (1,), 7)
    meet(image, live)
    carry_out(image, change.decisions)
    assert on_broker_change(image, live).decisions == []
    assert on_controller_failover(image) == []


def test_an_unclean_topic_prefers_the_bounced_member_of_the_isr() -> None:
    policy = ClusterPolicy(unclean_leader_election=True)
    image = cluster({1, 2}, {0: AR}, {0: state(1, (1,))}, policy=policy)
    live = brokers({2}) | {1: broker(1, incarnation=1)}
    assert only(on_broker_change(image, live).decisions).after.leader == 1


def test_a_new_partition_waits_for_a_first_broker() -> None:
    image = cluster((), {0: AR})
    assert init_leaders(image, [NAME]) == []
    decision = only(on_broker_change(image, brokers({2, 3})).decisions)
    assert decision.after == PartitionState(2, 0, (2, 3), 7)
    assert (decision.version, decision.before) == (NO_NODE, None)


def test_first_leaders_only_where_there_is_no_state() -> None:
    """A state without a leader must not be initialized again."""
    image = cluster({2, 3}, {0: AR, 1: AR}, {0: state(NO_LEADER, (1,))})
    decision = only(on_topic_change(image, [TOPIC, "unknown"]))
    assert (decision.partition, decision.before) == (1, None)
    assert [d.partition for d in on_controller_failover(image)] == [1]


def test_first_leaders_are_no_failover_of_a_partition_whose_leader_is_down() -> None:
    """A failover knows which brokers are new incarnations; a first election does not (rule R9)."""
    image = cluster({2}, {0: (1, 2)}, {0: state(1, (1, 2))})

    assert init_leaders(image, [NAME]) == []


def test_a_new_controller_finds_a_leader_that_registered_after_its_state() -> None:
    """A new controller did not see the broker bounce, but the zxids show it."""
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    assert on_controller_failover(image) == []
    image.apply([BrokerUp(broker(1, incarnation=1), zxid=11)])
    assert only(on_controller_failover(image)).after == PartitionState(2, 5, (2, 3), 7)


def test_topics_under_deletion_and_topics_without_an_id_are_skipped() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    image.apply([DeletionPending(TOPIC)])
    assert on_broker_change(image, brokers({2})).decisions == []
    image = cluster(AR, {})
    image.apply([TopicSet("bare", TopicAssignment("", {0: AR}))])
    assert on_topic_change(image, ["bare"]) == []


def test_preferred_election_moves_leadership_only() -> None:
    image = cluster(AR, {0: AR, 1: AR}, {0: state(2, (2, 3, 1)), 1: state(1, AR)})
    decision = only(elect_preferred(image, [NAME, TopicPartition(TOPIC, 1)]))
    assert decision.after == PartitionState(1, 5, (2, 3, 1), 7)


def test_preferred_election_skips_a_new_incarnation() -> None:
    """R9: the broker registered after the state was written, and the failover write failed."""
    image = cluster(AR, {0: AR}, {0: state(2, AR)})
    image.registered_at[1] = 50
    assert elect_preferred(image, [NAME]) == []


@pytest.mark.parametrize("drained", [False, True])
def test_a_requested_election_keeps_no_new_incarnation_in_the_isr(drained: bool) -> None:
    """R9: after this write, the zxids would no longer show that the broker bounced."""
    image = cluster(AR, {0: AR}, {0: state(2, AR)})
    image.registered_at[3] = 50
    order = move_leaders_off(image, [NAME], frozenset({2})) if drained else None
    decision = only(elect_preferred(image, [NAME]) if order is None else order)
    assert (decision.after.leader, decision.after.isr) == (1, (1, 2))


def test_a_requested_unclean_election_changes_only_leaderless_partitions() -> None:
    image = cluster({2, 3}, {0: AR, 1: AR}, {0: state(NO_LEADER, (1,)), 1: state(2, (2, 3))})
    decision = only(elect_unclean(image, [NAME, TopicPartition(TOPIC, 1)]))
    assert (decision.partition, decision.after.leader, decision.reason) == (0, 2, "unclean")


def test_unknown_members_of_the_znode_are_kept() -> None:
    kept = PartitionState(1, 4, AR, 6, extra={"note": "mine"})
    image = cluster(AR, {0: AR}, {0: kept})
    after = only(on_broker_change(image, brokers({2, 3})).decisions).after
    assert after.extra == {"note": "mine"}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[set[int], set[int]]]:
    """Draw steps of (live brokers, those of them that bounced)."""
    sets = st.sets(st.integers(1, 4))
    return [(live, draw(sets) & live) for live in draw(st.lists(sets, min_size=1, max_size=8))]


@pytest.mark.parametrize("unclean", [False, True])
@given(history=histories())
def test_every_history_keeps_the_invariants(
    history: list[tuple[set[int], set[int]]], unclean: bool
) -> None:
    policy = ClusterPolicy(unclean_leader_election=unclean)
    assignment = {0: (1, 2, 3), 1: (4, 1, 2), 2: (3,)}
    image = cluster((), assignment, policy=policy)
    incarnations = dict.fromkeys(range(1, 5), 0)
    for step, (ids, bounced) in enumerate(history, start=1):
        for broker_id in bounced:
            incarnations[broker_id] += 1
        live = {b: broker(b, incarnations[b]) for b in sorted(ids)}
        change = on_broker_change(image, live)
        check_decisions(change.decisions, set(live), assignment, unclean)
        meet(image, live, zxid=20 * step)
        carry_out(image, change.decisions, zxid=20 * step + 10)
        assert on_broker_change(image, live).decisions == []
        check_states(image, set(live))


def check_decisions(
    decisions: list[StateDecision],
    live: set[int],
    assignment: dict[int, tuple[int, ...]],
    unclean: bool,
) -> None:
    for decision in decisions:
        before, after = decision.before, decision.after
        assert after.leader_epoch == (before.leader_epoch + 1 if before else 0)
        assert after.controller_epoch == 7
        assert set(after.isr) <= set(assignment[decision.partition])
        assert after.isr
        assert not set(after.eligible) & set(after.isr)
        if after.leader == NO_LEADER:
            assert before is not None
            assert after.isr == before.isr
        else:
            assert after.leader in after.isr
            assert after.leader in live
        if before is not None and not set(after.isr) <= set(before.isr):
            assert unclean
            assert decision.reason == "unclean"


def check_states(image: ClusterImage, live: set[int]) -> None:
    """Every partition with a clean candidate has a leader, and only live brokers lead."""
    for name, partition in image.partitions():
        if partition.state is None:
            assert not live & set(partition.replicas)
            continue
        current = the_state(image, name)
        assert (current.leader == NO_LEADER) == (not live & set(current.isr))


def test_image_ignores_what_is_older_than_it_knows() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    version = image.version
    assert image.apply([StateSet(TOPIC, 0, state(2, AR), 2, 99)]) == []
    assert image.apply([BrokerUp(broker(1), zxid=1)]) == []
    assert image.version == version


def test_the_version_of_the_image_rises_with_every_visible_change() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, AR)}, zxid=10)
    assert image.version == 10
    image.apply([StateSet(TOPIC, 0, state(1, (1,)), 4, zxid=9)])
    assert image.version == 11
    image.advance_version(40)
    assert image.version == 41


def test_defect_07_a_controlled_shutdown_counts_the_floor_without_the_replicas_being_added() -> (
    None
):
    image = cluster(AR, {0: (2, 1)}, {0: state(2, (1, 2))})
    image.apply([TopicSet(TOPIC, TopicAssignment("id-1", {0: (2, 1)}, adding={0: (2,)}), 1, 11)])
    image.mark_stopping(2)

    assert assess_stop_risks(image, 2, partitions_hosted_by(image, 2)).can_stop
    decision = only(decide_controlled_shutdown(image, [NAME]))

    assert (decision.after.leader, decision.after.isr, decision.after.eligible) == (1, (1,), ())


def image_of_topics(sizes: list[int]) -> ClusterImage:
    """Return an image with topics of so many partitions, led by brokers 1 to 3 in turn."""
    image = ClusterImage(controller_epoch=7)
    image.apply([BrokerUp(broker(b), zxid=1) for b in (1, 2, 3, 4)])
    for number, size in enumerate(sizes):
        assigned = {p: tuple((p + n) % 4 + 1 for n in range(3)) for p in range(size)}
        image.apply([TopicSet(f"t{number}", TopicAssignment(f"id-{number}", assigned), 0, zxid=2)])
        image.apply([StateSet(f"t{number}", p, state(r[0], r), 3, 10) for p, r in assigned.items()])
    return image


@given(
    sizes=st.lists(st.integers(0, 9), max_size=6),
    most=st.integers(1, 12),
    live=st.sets(st.sampled_from((1, 2, 3, 4))),
    bounced=st.sets(st.sampled_from((1, 2, 3, 4))),
)
def test_a_part_of_the_topics_at_a_time_gives_the_same_decisions(
    sizes: list[int], most: int, live: set[int], bounced: set[int]
) -> None:
    image = image_of_topics(sizes)
    found = {b: broker(b, int(b in bounced)) for b in sorted(live)}
    parts = list(image.topic_parts(most))
    whole = on_broker_change(image, found)

    assert [name for part in parts for name in part] == list(image.topics)
    change = on_broker_change(image, found, ())
    assert change == msgspec.structs.replace(whole, decisions=[])
    in_parts = [on_broker_change(image, found, part).decisions for part in parts]
    assert sorted(chain.from_iterable(in_parts), key=repr) == sorted(whole.decisions, key=repr)
    meet(image, found)
    repairs = [on_controller_failover(image, part) for part in parts]
    assert list(chain.from_iterable(repairs)) == on_controller_failover(image)
