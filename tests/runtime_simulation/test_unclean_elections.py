"""Unclean elections: they lose what they may lose, nothing else, and readers are told of it."""

from __future__ import annotations

from typing import Final

import pytest

from tests.runtime_simulation.additions import FIRST_WITH_UNCLEAN_ELECTIONS
from tests.runtime_simulation.plan import MIN_INSYNC, UNCLEAN, Action, Fault, Plan
from tests.runtime_simulation.readers import TOLD
from tests.runtime_simulation.run import report, simulate
from tests.runtime_simulation.test_runtime_simulation import check_clean, seeds_with
from tests.runtime_simulation.unclean_elections import (
    ELECTED,
    LOST,
    UncleanElection,
    UncleanElections,
)
from tests.runtime_simulation.unclean_faults import ALONE, UncleanFaults, ask

pytestmark = pytest.mark.timeout(1200)

FEW, MANY = 8, 60
FIRST: Final = FIRST_WITH_UNCLEAN_ELECTIONS
LOSES: Final = Plan(
    partitions=1,
    pause_s=0.03,
    horizon_s=10.0,
    actions=(Action(0.05, MIN_INSYNC, 0, 0, 0),),
    faults=(Fault(0.5, UNCLEAN, 0, 4.5, 10),),
)
"""Both followers are killed until the leader is in sync alone, and then the leader is."""


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_only_what_unclean_elections_may_lose_is_lost(count: int) -> None:
    seeds = seeds_with(UNCLEAN, FIRST, FIRST + 8 * count)[:count]

    assert len(seeds) == count
    assert check_clean(seeds).keys() >= {UNCLEAN, ALONE, ELECTED}


@pytest.mark.slow
def test_unclean_elections_do_what_they_are_meant_to_do() -> None:
    seeds = seeds_with(UNCLEAN, FIRST, FIRST + 8 * MANY)[:MANY]

    assert check_clean(seeds).keys() >= {ELECTED, LOST, TOLD}


def test_only_later_seeds_have_unclean_elections() -> None:
    assert seeds_with(UNCLEAN, FIRST - 100, FIRST) == []


def test_an_unclean_election_loses_records_and_readers_are_told() -> None:
    result = simulate(0, plan=LOSES)

    assert not result.failed, report(result)
    assert result.sometimes.keys() >= {ELECTED, LOST, TOLD}


def test_a_loss_that_no_unclean_election_explains_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the log of the leader that was elected had had all of it."""
    monkeypatch.setattr(UncleanElection, "has", lambda *_: True)

    result = simulate(0, plan=LOSES)

    assert result.message.startswith("lost"), report(result)


def test_an_unclean_election_that_nobody_has_asked_for_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UncleanFaults, "_ask", lambda faults, one: ask(faults._cluster, one))

    result = simulate(0, plan=LOSES)

    assert result.message.startswith("I8: reader"), report(result)


def test_records_that_come_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the leader that was elected had had nothing."""
    note = UncleanElections._note

    def note_nothing(elections: UncleanElections, *arguments: object) -> None:
        note(elections, *arguments)  # type: ignore[arg-type]  # it is handed on
        elections.ever = [
            UncleanElection(one.name, one.partition, one.leader_epoch, 0, 0, {})
            for one in elections.ever
        ]

    monkeypatch.setattr(UncleanElections, "_note", note_nothing)

    result = simulate(0, plan=LOSES)

    assert "which was lost in epoch" in result.message, report(result)
