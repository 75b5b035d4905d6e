"""Automatic return to preferred leaders, and the possible loss of an unclean election."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.wire import TopicPartition
from leadline_common.znodes import TopicAssignment
from leadline_controller.domain.cluster import ClusterImage, RemovalPending, StateSet, TopicSet
from leadline_controller.domain.failover import (
    elect_preferred,
    elect_unclean,
    possible_loss,
)
from leadline_controller.domain.healing import targets_for
from leadline_controller.domain.leader_imbalance import LeaderImbalance
from tests.unit.controller.images import NAME, TOPIC, carry_out, cluster, state, the_state

PREFERRED = (1, 2, 3)


def non_preferred_leaders(image: ClusterImage, percentage: int) -> list[TopicPartition]:
    """Return what is to move among all topics."""
    imbalance = LeaderImbalance(image)
    imbalance.add(image.topics)
    return imbalance.to_move(percentage)


def image_with(away: int, total: int = 20) -> ClusterImage:
    """Return partitions that all prefer broker 1; broker 2 leads `away` of them."""
    states = {p: state(2 if p < away else 1, PREFERRED) for p in range(total)}
    return cluster(PREFERRED, dict.fromkeys(range(total), PREFERRED), states)


@pytest.mark.parametrize(("away", "moved"), [(0, 0), (1, 0), (2, 0), (3, 3), (20, 20)])
def test_leaders_move_only_above_the_percentage(away: int, moved: int) -> None:
    assert len(non_preferred_leaders(image_with(away), 10)) == moved


@given(st.integers(1, 20), st.integers(0, 100))
def test_after_the_election_no_leader_is_non_preferred(away: int, percentage: int) -> None:
    image = image_with(away)
    names = non_preferred_leaders(image, percentage)
    assert bool(names) == (100 * away > percentage * 20)
    carry_out(image, elect_preferred(image, names))
    assert non_preferred_leaders(image, 0 if names else percentage) == []


def test_leaderless_moving_and_deleted_partitions_are_skipped() -> None:
    image = cluster(
        PREFERRED,
        dict.fromkeys(range(4), PREFERRED),
        {0: state(-1, (2,)), 1: state(2, PREFERRED), 2: state(2, PREFERRED)},
    )
    moving = TopicAssignment("id-1", dict.fromkeys(range(4), PREFERRED), adding={1: (1,)})
    image.apply([TopicSet(TOPIC, moving, 1), RemovalPending(TOPIC, frozenset({2}))])
    assert non_preferred_leaders(image, 0) == []


def test_a_stopping_or_draining_broker_gets_no_leadership_back() -> None:
    image = image_with(20)
    image.mark_stopping(1)
    assert non_preferred_leaders(image, 0) == []
    assert elect_preferred(image, [NAME]) == []
    image = image_with(20)
    image.draining = frozenset({1})
    assert non_preferred_leaders(image, 0) == []
    assert elect_preferred(image, [NAME]) == []


def test_the_possible_loss_of_an_election() -> None:
    image = cluster({2, 3}, {0: PREFERRED}, {0: state(-1, (1,))})
    (unclean,) = elect_unclean(image, [NAME])
    assert possible_loss(unclean) == (1,)
    holds_all = state(-1, (1,))
    image.apply([StateSet(TOPIC, 0, type(holds_all)(-1, 4, (1,), 6, eligible=(3,)), 4)])
    (harmless,) = elect_unclean(image, [NAME])
    assert (harmless.after.leader, possible_loss(harmless)) == (3, ())
    image = image_with(1)
    (clean,) = elect_preferred(image, [NAME])
    assert possible_loss(clean) == ()
    assert the_state(image).leader == 2


def test_healing_places_nothing_on_an_emptying_or_stopping_broker() -> None:
    image = cluster(range(2, 7), {0: PREFERRED}, {0: state(2, (2, 3))})
    image.emptying = frozenset({4})
    image.mark_stopping(5)
    (row,) = targets_for(image, [NAME], 1, busy=())
    assert row.replicas == (6, 2, 3)
