"""A membership in the ISR belongs to a log directory: leader and follower (rule R17)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.rules import ALL_RULES
from leadline_broker.domain.state import PublishedState
from leadline_client.errors import StorageFailed
from leadline_common.directories import DirectoryEpochs
from leadline_common.rpc import NO_ERROR
from tests.unit.broker.replicas import (
    AR,
    ME,
    Follower,
    MemoryLog,
    leader,
    leadership,
    replica,
    row,
    the_proposal,
)


def leading(epochs: DirectoryEpochs | None, isr: tuple[int, ...] = AR) -> tuple[Replica, MemoryLog]:
    made, log = replica((4, 4, 4))
    code, _ = made.on_leader_and_isr(row(ME, 5, isr, directory_epochs=epochs), 0)
    assert code == NO_ERROR
    return made, log


@pytest.mark.parametrize(
    ("mine", "recorded", "leads"),
    [(1, None, True), (2, {1: 2}, True), (2, None, False), (1, {1: 2}, False), (2, {1: 3}, False)],
)
def test_defect_01_a_grant_to_lead_is_for_one_directory(
    mine: int, recorded: DirectoryEpochs | None, leads: bool
) -> None:
    made, _ = replica((4, 4))
    made.state.directory_epoch = mine

    code, effects = made.on_leader_and_isr(row(ME, 5, directory_epochs=recorded), 0)

    assert (code, made.role) == (
        (NO_ERROR, Role.LEADER) if leads else (StorageFailed.code, Role.FENCED)
    )
    assert bool(effects) == leads


def test_defect_01_any_directory_may_follow_and_states_its_epoch() -> None:
    made, _ = replica((4, 4))
    made.state.directory_epoch = 2

    code, _ = made.on_leader_and_isr(row(3, 5), 0)

    fetch = made.fetch_row()
    assert (code, fetch and fetch.directory_epoch) == (NO_ERROR, 2)


def test_defect_01_a_member_with_another_directory_commits_nothing() -> None:
    """Its old directory may return, and then counts as a member without these records."""
    made, _ = leading(None)
    Follower(made, 2).fetch(3, 4)
    Follower(made, 3).fetch(3, 4, directory=2)

    assert made.state.high_watermark == 0

    Follower(made, 3, incarnation=1).fetch(3, 4)
    assert made.state.high_watermark == 3


def test_defect_01_without_the_rule_it_would_commit() -> None:
    rules = replace(ALL_RULES, r17_directories=False)
    made, _ = leader((4, 4, 4), rules=rules)
    Follower(made, 2).fetch(3, 4)
    Follower(made, 3).fetch(3, 4, directory=2)

    assert made.state.high_watermark == 3


def test_defect_01_a_joiner_is_bound_to_the_directory_that_it_caught_up_with() -> None:
    made, _ = leading({2: 4}, isr=(ME, 2))
    Follower(made, 2).fetch(3, 4, directory=4)
    _, effects = Follower(made, 3).fetch(3, 4, directory=2)

    proposal = the_proposal(effects)
    assert (proposal.isr, proposal.directory_epochs) == (AR, {2: 4, 3: 2})

    made.on_isr_written(proposal.number, IsrWriteResult.COMMITTED, 1)
    assert made.state.directory_epochs == {2: 4, 3: 2}


def test_defect_01_a_joiner_that_changes_its_directory_commits_nothing_meanwhile() -> None:
    made, log = leading(None, isr=(ME, 2))
    second, third = Follower(made, 2), Follower(made, 3)
    second.fetch(3, 4)
    _, effects = third.fetch(3, 4)
    proposal = the_proposal(effects)
    log.append((5,))
    second.fetch(4, 5)
    Follower(made, 3, incarnation=1).fetch(4, 5, directory=2)

    assert made.state.high_watermark == 3

    made.on_state_read(PublishedState(ME, 5, proposal.isr, (), 1))
    assert made.state.isr == AR
    assert made.state.high_watermark == 3


def test_defect_01_a_joiner_on_the_directory_of_its_proposal_holds_nothing_up() -> None:
    """Its proposal names that directory, although the committed state does not yet."""
    made, log = leading(None, isr=(ME, 2))
    second, third = Follower(made, 2), Follower(made, 3)
    second.fetch(3, 4)
    assert the_proposal(third.fetch(3, 4, directory=2)[1]).directory_epochs == {3: 2}
    log.append((5,))

    second.fetch(4, 5)
    third.fetch(4, 5, directory=2)

    assert made.state.high_watermark == 4


def test_defect_01_a_refresh_brings_the_directories_of_a_newer_isr() -> None:
    made, _ = leading(None, isr=(ME, 2))

    made.on_leader_and_isr(row(ME, 5, AR, version=1, directory_epochs={3: 2}), 0)

    assert leadership(made).pending is None
    assert (made.state.isr, made.state.directory_epochs) == (AR, {3: 2})
