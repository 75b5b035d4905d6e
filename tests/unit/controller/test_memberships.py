"""Brokers that return with another log directory, or without a log (rule R17)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from leadline_client.wire import NO_LEADER
from leadline_common.api.what_if import WhatIfElection
from leadline_common.directories import DirectoryEpochs
from leadline_common.elections import ElectionKind, ElectionReason, StopRisk
from leadline_common.znodes import BrokerRegistration, PartitionState
from leadline_controller.api.what_if import WhatIfEndpoints
from leadline_controller.domain.cluster import BrokerDown, BrokerUp, ClusterImage
from leadline_controller.domain.controlled_shutdown import (
    assess_stop_risks,
    decide_controlled_shutdown,
    partitions_hosted_by,
)
from leadline_controller.domain.election import elect
from leadline_controller.domain.failover import (
    StateDecision,
    elect_preferred,
    elect_unclean,
    on_broker_change,
    on_controller_failover,
    possible_loss,
)
from leadline_controller.domain.memberships import misplaced_on
from tests.unit.controller.images import (
    NAME,
    broker,
    brokers,
    carry_out,
    cluster,
    on_directory,
    state,
    the_state,
)

AR = (1, 2, 3)


def image_of(
    live: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...],
    epochs: DirectoryEpochs | None = None,
    eligible: tuple[int, ...] = (),
) -> ClusterImage:
    known = state(leader, isr)
    return cluster(
        live,
        {0: AR},
        {0: msgspec.structs.replace(known, directory_epochs=epochs, eligible=eligible)},
    )


def change(image: ClusterImage, live: Mapping[int, BrokerRegistration]) -> list[StateDecision]:
    """Decide about a change of the live brokers, and carry it out."""
    found = on_broker_change(image, live).decisions
    image.apply([BrokerDown(gone) for gone in image.brokers if gone not in live])
    image.apply([BrokerUp(one, zxid=50) for one in live.values()])
    carry_out(image, found)
    return found


def test_defect_01_an_emptied_member_leaves_the_isr_while_another_is_live() -> None:
    image = image_of((1, 2, 3), 1, (1, 2, 3))

    change(image, brokers((1, 2)) | {3: on_directory(3, 2)})

    assert the_state(image) == PartitionState(1, 5, (1, 2), 7)


def test_defect_01_an_emptied_member_alone_does_not_lead_and_the_isr_is_kept() -> None:
    image = image_of((1, 2, 3), 1, (1, 2, 3))

    (decision,) = change(image, {3: on_directory(3, 2)})

    assert decision.reason is ElectionReason.DIRECTORY_REPLACED
    assert the_state(image) == PartitionState(NO_LEADER, 5, (1, 2, 3), 7)
    assert change(image, {3: on_directory(3, 2)}) == []
    assert on_controller_failover(image) == []

    change(image, {2: broker(2, 1), 3: on_directory(3, 2)})
    assert the_state(image) == PartitionState(2, 6, (2,), 7, eligible=(1, 3))


def test_defect_01_the_old_directory_returns_and_its_member_leads() -> None:
    image = image_of((), NO_LEADER, (2,))
    assert change(image, {2: on_directory(2, 2)}) == []

    change(image, {2: on_directory(2, 1, incarnation=2)})

    assert the_state(image) == PartitionState(2, 5, (2,), 7)


def test_defect_01_an_ordered_election_takes_the_eligible_replica_and_loses_nothing() -> None:
    image = image_of((), NO_LEADER, (2,), eligible=(1,))
    change(image, brokers((1, 3)) | {2: on_directory(2, 2)})
    assert the_state(image).leader == NO_LEADER

    (decision,) = elect_unclean(image, [NAME])

    assert (decision.after.leader, decision.reason) == (1, ElectionReason.UNCLEAN)
    assert possible_loss(decision) == ()


def test_defect_01_an_eligible_replica_with_another_directory_is_no_better_than_others() -> None:
    image = image_of((), NO_LEADER, (2,), eligible=(1,))
    change(image, {1: on_directory(1, 2), 3: broker(3, 1)})

    (decision,) = elect_unclean(image, [NAME])

    assert decision.after.leader == 3
    assert possible_loss(decision) == (2,)


def test_defect_01_an_unclean_leader_on_a_new_directory_is_a_member_with_that_one() -> None:
    image = image_of((), NO_LEADER, (2,), eligible=(2,))
    change(image, {2: on_directory(2, 2)})

    (decision,) = elect_unclean(image, [NAME])

    assert decision.after.leader == 2
    assert decision.after.directory_epochs == {2: 2}
    assert possible_loss(decision) == (2,)


def test_defect_01_the_members_of_a_new_partition_are_bound_to_the_directories_they_have() -> None:
    image = cluster((), {0: AR})

    (decision,) = change(image, brokers((1, 2)) | {3: on_directory(3, 4)})

    assert (decision.after.isr, decision.after.directory_epochs) == (AR, {3: 4})


def test_defect_01_members_keep_their_directories_over_elections() -> None:
    image = image_of((1, 2, 3), 1, (1, 2, 3), {3: 2, 2: 5})
    live = {2: on_directory(2, 5, 0), 3: on_directory(3, 2, 0)}
    image.apply([BrokerUp(one, zxid=1) for one in live.values()])

    change(image, live)

    after = the_state(image)
    assert (after.leader, after.isr, after.directory_epochs) == (2, (2, 3), {2: 5, 3: 2})


def test_defect_01_one_lost_log_concerns_its_partition_only() -> None:
    both = {0: AR, 1: AR}
    image = cluster((), both, {p: state(NO_LEADER, (3,)) for p in both})
    lost = msgspec.structs.replace(broker(3, 1), replica_epochs={"id-1": {0: 2}})

    decided = change(image, {3: lost})

    assert [(one.partition, one.after.leader) for one in decided] == [(1, 3)]
    assert misplaced_on(image, image.brokers, [3]) == {3: [NAME]}


def test_defect_01_what_if_answers_for_misplaced_members() -> None:
    asked = WhatIfElection(
        kind=ElectionKind.OFFLINE, assignment=[1, 2, 3], isr=[3], live=[3], misplaced=[3]
    )

    answer = WhatIfEndpoints().what_if_election(asked)

    assert (answer.leader, answer.isr) == (NO_LEADER, [3])
    assert answer.reason is ElectionReason.DIRECTORY_REPLACED


def test_defect_01_no_leadership_moves_to_an_emptied_member() -> None:
    image = image_of((1, 2), 2, (1, 2, 3))
    image.apply([BrokerUp(on_directory(1, 2, 0), zxid=1)])

    assert elect_preferred(image, [NAME]) == []
    image.mark_stopping(2)
    assert decide_controlled_shutdown(image, [NAME]) == []
    risks = assess_stop_risks(image, 2, partitions_hosted_by(image, 2))
    assert risks.partitions == {StopRisk.NO_SUCCESSOR: [NAME]}


@pytest.mark.parametrize("kind", list(ElectionKind))
def test_defect_01_no_clean_election_takes_a_misplaced_member(kind: ElectionKind) -> None:
    if kind is ElectionKind.NEW_PARTITION:
        return
    chosen = elect(kind, (3, 1), (1, 3), (3,), leader=1, misplaced=(3,))

    assert chosen.leader != 3
