"""Thousands of simulated clusters, each with other faults: nothing acknowledged is lost.

A failing seed is printed with the smallest plan of faults that still fails, its
trace, and the command that replays it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from leadline_broker.domain.rules import ALL_RULES
from tests.simulation.checks import LOSSES, LOST, STUCK, TWO_RECORDS
from tests.simulation.faults import make_plan
from tests.simulation.run import report, search, shrink, simulate

CHUNK = 250
SEEDS = 10_000
CHANGING = 200
FIND_WITHIN = 4_000
SOAK_CHUNK = 2_500
SOAK_SEEDS = 100_000

MUST_HAPPEN = {
    "ack of a former leader",
    "acknowledged",
    "acks parked over an epoch change",
    "broker started before its session expired",
    "controller resigned",
    "controller's write of unknown outcome adopted",
    "diverging answer",
    "diverging answer over more than one epoch",
    "disk replaced",
    "election: directory_replaced",
    "eligible replicas dropped",
    "eligible replicas recorded",
    "election: isr",
    "election: none",
    "election: unchanged",
    "election: unclean, ordered",
    "failed produce of a former leader",
    "fetch of a newer epoch refused",
    "fetch of an older epoch refused",
    "grant for another incarnation refused",
    "grant from before a stop refused",
    "ISR grown",
    "ISR shrunk",
    "ISR write in conflict",
    "ISR write of unknown outcome",
    "ISR write of unknown outcome adopted",
    "joiner refused",
    "late fetch answer",
    "late fetch refused",
    "leader stepped down after reading",
    "leadership moved by an operator",
    "log cut",
    "old disk returned",
    "power cut lost records",
    "produce of unknown outcome",
    "produce refused: NotEnoughReplicas",
    "reassignment: Elect",
    "reassignment: Expand",
    "reassignment: Finish",
    "reassignment: Shrink",
    "reassignment cancelled",
    "replica deleted",
    "replica made stray",
    "retargeted",
    "session of a live broker expired",
    "stale controller refused",
    "zombie controller fenced",
}
"""States that the faults must bring about; a run that reaches none of them proves little."""

MUST_NOT_HAPPEN = {"election: unclean", "log reset"}


def check_clean(first: int, count: int) -> Counter[str]:
    reached: Counter[str] = Counter()
    for seed in range(first, first + count):
        result = simulate(seed)
        if result.failed:
            pytest.fail(report(shrink(result)), pytrace=False)
        reached += result.sometimes
    return reached


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_with_every_rule_nothing_is_lost(first: int) -> None:
    reached = check_clean(first, CHUNK)

    assert reached["acknowledged"] > CHUNK
    assert not MUST_NOT_HAPPEN & reached.keys()


def test_defect_07_eligible_replicas_hold_what_is_committed_when_the_minimum_changes() -> None:
    """The seeds in which min.insync.replicas changes, with and without a reassignment."""
    changing = (seed for seed in range(SEEDS, 2 * SEEDS) if changes_the_minimum(seed))
    reached: Counter[str] = Counter()
    for seed in islice(changing, CHANGING):
        reached += check_clean(seed, 1)

    assert reached["eligible replicas dropped"] > 1
    assert reached["eligible replicas recorded"] > CHANGING


def changes_the_minimum(seed: int) -> bool:
    return any(fault.kind == "set min.insync.replicas" for fault in make_plan(seed).faults)


def test_the_faults_reach_what_they_are_meant_to_reach() -> None:
    """Counted over seeds of their own until all is reached, as tests may run apart."""
    missing = set(MUST_HAPPEN)
    for seed in range(SEEDS, 2 * SEEDS):
        missing -= simulate(seed).sometimes.keys()
        if not missing:
            break

    assert not missing


@pytest.mark.parametrize(
    ("rule", "expected", "first"),
    [
        ("r1_identity", LOST, 1300),
        ("r2_reconcile", LOST, 0),
        ("r3_correlated", LOST, 40),
        ("r4_durable_ends", LOST, 100),
        ("r5_proposed_isr", LOST, 105),
        pytest.param("r6_joiner", LOST, 90, marks=pytest.mark.slow),
        ("r7_ambiguous", LOST, 300),
        ("r8_level_triggered", STUCK, 0),
        ("r9_incarnation", TWO_RECORDS, 0),
        ("r13_reassignment", LOST, 0),
        ("r17_directories", LOST, 0),
    ],
)
def test_without_a_rule_the_loss_is_found(rule: str, expected: str, first: int) -> None:
    """The search begins shortly before a known failure, to be quick; a change may move it."""
    rules = replace(ALL_RULES, **{rule: False})

    found = search(range(first, first + FIND_WITHIN), rules, kind=expected)

    assert found is not None
    assert found.kind in LOSSES
    assert not simulate(found.seed).failed


def test_defect_01_a_wiped_disk_is_a_loss_that_the_simulator_finds_without_the_rule() -> None:
    rules = replace(ALL_RULES, r17_directories=False)
    found = search(range(FIND_WITHIN), rules, kind=LOST)
    assert found is not None

    small = shrink(found, rules)

    assert small.plan is not None
    assert "swap disk" in {fault.kind for fault in small.plan.faults}


def test_a_seed_decides_the_whole_run() -> None:
    first, second = (simulate(7, tracing=True) for _ in range(2))

    assert first.trace
    assert (first.trace, first.steps) == (second.trace, second.steps)


def test_shrinking_keeps_the_violation_and_leaves_out_what_it_does_not_need() -> None:
    rules = replace(ALL_RULES, r8_level_triggered=False)
    found = search(range(400), rules, kind=STUCK)
    assert found is not None

    small = shrink(found, rules)

    assert small.kind == found.kind
    assert small.plan is not None
    assert len(small.plan.faults) <= len(make_plan(found.seed).faults)
    assert f"--seed {found.seed} --off r8_level_triggered" in report(small, rules)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS, SOAK_SEEDS, SOAK_CHUNK))
def test_soak(first: int) -> None:
    check_clean(first, SOAK_CHUNK)
