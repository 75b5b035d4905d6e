"""Adding and removing partitions: validation, placement and first epochs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.errors import (
    InvalidRequest,
    PartitionRemovalPending,
    PolicyViolation,
    UnknownPartition,
)
from leadline_client.wire import TopicPartition
from leadline_common.tasks import TargetRow
from leadline_common.znodes import TopicAssignment
from leadline_controller.domain.cluster import (
    BrokerUp,
    DeletionPending,
    RemovalPending,
    TopicImage,
    TopicSet,
)
from leadline_controller.domain.failover import FIRST_EPOCH, init_leaders, on_broker_change
from leadline_controller.domain.partitions import (
    assignment_with,
    assignment_without,
    check_addition_intents,
    check_removal,
    check_removal_intents,
    plan_additions,
)
from leadline_controller.domain.placement import assign_replicas
from leadline_controller.domain.planning.requests import plan_basis
from leadline_controller.domain.reassignment.requests import (
    Submission,
    check_submission,
    current_replicas,
)
from tests.unit.controller.images import NAME, TOPIC, broker, brokers, cluster, state

AR = (1, 2, 3)
FOUR = dict.fromkeys(range(4), AR)


def topic_of(image) -> TopicImage:  # type: ignore[no-untyped-def]  # an image
    topic: TopicImage = image.topics[TOPIC]
    return topic


@given(st.integers(1, 7), st.integers(1, 20), st.integers(1, 20), st.data())
def test_a_topic_grows_as_if_it_had_been_created_so(
    live: int, first: int, more: int, data: st.DataObject
) -> None:
    """Kafka starts the second replicas at the start index; added partitions do the same."""
    factor = data.draw(st.integers(1, live))
    start = data.draw(st.integers(0, live - 1))
    racks = dict.fromkeys(range(live))
    whole = assign_replicas(racks, first, factor, start_index=start)
    image = cluster(range(live), whole)
    added = plan_additions(topic_of(image), image, first + more, None, ())
    expected = assign_replicas(racks, more, factor, start_index=start, start_partition=first)
    assert added == expected


def test_growth_respects_racks_and_skips_dead_and_stopping_brokers() -> None:
    image = cluster((), {0: (2, 3)})
    for broker_id in range(1, 6):
        image.apply([BrokerUp(broker(broker_id, rack="ab"[broker_id % 2]), zxid=1)])
    image.mark_stopping(5)
    added = plan_additions(topic_of(image), image, 9, None, ())
    assert {b for replicas in added.values() for b in replicas} == {1, 2, 3, 4}
    assert all(one % 2 != other % 2 for one, other in added.values())


def test_growth_starts_at_the_next_broker_if_the_first_one_is_down() -> None:
    image = cluster({1, 3, 4}, {0: (2,)})
    assert plan_additions(topic_of(image), image, 4, None, ()) == {1: (4,), 2: (1,), 3: (3,)}


def test_growth_to_the_same_total_is_refused() -> None:
    image = cluster(AR, FOUR)
    topic = topic_of(image)
    for total in (1, 4):
        with pytest.raises(PolicyViolation, match="already has 4 partitions"):
            plan_additions(topic, image, total, None, ())
    with pytest.raises(InvalidRequest, match="4 to 5"):
        plan_additions(topic, image, 6, {4: AR}, AR)
    with pytest.raises(PolicyViolation, match="2 replicas"):
        plan_additions(topic, image, 5, {4: (1, 2)}, AR)
    image.apply([RemovalPending(TOPIC, frozenset({3}))])
    with pytest.raises(PartitionRemovalPending):
        plan_additions(topic, image, 6, None, ())


def test_only_the_highest_partitions_are_removed_and_one_stays() -> None:
    image = cluster(AR, FOUR)
    topic = topic_of(image)
    assert check_removal(topic, [2, 3]) == (3, 2)
    for numbers in ([2], [1, 3], [0, 1, 2, 3]):
        with pytest.raises(PolicyViolation):
            check_removal(topic, numbers)
    with pytest.raises(UnknownPartition):
        check_removal(topic, [3, 4])
    image.apply([RemovalPending(TOPIC, frozenset({3}))])
    assert check_removal(topic, [2]) == (2,)
    with pytest.raises(PartitionRemovalPending):
        check_removal(topic, [3])


@given(st.sets(st.integers(0, 8)), st.sets(st.integers(0, 8)))
def test_intents_of_operators_leave_no_gap_and_no_empty_topic(
    adding: set[int], removing: set[int]
) -> None:
    image = cluster(AR, FOUR)
    topic = topic_of(image)
    grown = check_addition_intents(topic, dict.fromkeys(adding, AR), AR)
    assert sorted({*FOUR, *grown.accepted}) == list(range(4 + len(grown.accepted)))
    assert grown.accepted.keys() | grown.refused.keys() == adding
    shrunk = check_removal_intents(topic, removing)
    left = sorted(FOUR.keys() - shrunk.accepted.keys())
    assert left == list(range(len(left)))
    assert left
    assert shrunk.accepted.keys() | shrunk.refused.keys() == removing


def test_a_partition_that_is_added_again_begins_above_every_epoch_of_the_removed_one() -> None:
    image = cluster(AR, {0: AR, 1: AR}, {1: state(2, AR, epoch=9)})
    topic = topic_of(image)
    removed = assignment_without(topic, [1])
    assert (removed.partitions, removed.first_epochs) == ({0: AR}, {1: 10})
    image.apply([TopicSet(TOPIC, removed, 1)])
    image.apply([TopicSet(TOPIC, assignment_with(removed, {1: AR}), 2)])
    (decision,) = (d for d in init_leaders(image, [NAME._replace(partition=1)]))
    assert (decision.before, decision.after.leader_epoch) == (None, 10)


def test_a_partition_that_is_added_again_begins_above_the_epoch_in_which_it_was_stopped() -> None:
    """Seed 21185 of the runtime simulation: brokers refused its roles for ever."""
    image = cluster((), {0: AR, 1: AR})
    topic = topic_of(image)
    assert assignment_without(topic, [1]).first_epochs == {1: FIRST_EPOCH + 1}
    topic.assignment = TopicAssignment("id-1", {0: AR, 1: AR}, first_epochs={1: 4})
    assert assignment_without(topic, [1]).first_epochs == {1: 4}


def test_nothing_is_decided_for_a_partition_that_is_pending_removal() -> None:
    image = cluster(AR, {0: AR, 1: AR}, {0: state(1, AR), 1: state(1, AR)})
    image.apply([RemovalPending(TOPIC, frozenset({1}))])
    change = on_broker_change(image, brokers({2, 3}))
    assert [decision.partition for decision in change.decisions] == [0]


def test_defect_03_what_is_being_removed_is_neither_reassigned_nor_planned() -> None:
    image = cluster([1, 2], {0: (1,), 1: (1,)}, {0: state(1, (1,)), 1: state(1, (1,))})
    image.apply([RemovalPending(TOPIC, frozenset({1}))])
    wanted = Submission((TargetRow(TOPIC, 1, (2,)),))
    with pytest.raises(UnknownPartition):
        check_submission(wanted, image, {1, 2})
    assert current_replicas(image, TopicPartition(TOPIC, 1)) is None
    assert plan_basis(image, None).topics[TOPIC][1].keys() == {0}
    image.apply([DeletionPending(TOPIC)])
    assert current_replicas(image, TopicPartition(TOPIC, 0)) is None
