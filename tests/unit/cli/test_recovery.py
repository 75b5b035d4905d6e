"""Who may lead a restored partition: any history of clean elections, and its logs afterwards."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_cli.backup.recovery import (
    FoundLog,
    LogEnd,
    NotRecoverable,
    longest_log,
    recovered_state,
)
from leadline_common.znode_json import MAX_EPOCH
from leadline_common.znodes import PartitionState

REPLICAS = (1, 2, 3)
Log = list[tuple[int, int]]
"""The (epoch, record) pairs of a replica."""


def lived(choices: random.Random, steps: int) -> tuple[dict[int, Log], list[int], PartitionState]:
    """Let a partition live; return the logs, the acknowledged records, and a state on the way."""
    logs: dict[int, Log] = {broker: [] for broker in REPLICAS}
    leader, epoch, isr, acknowledged = 1, 0, set(REPLICAS), list[int]()
    backup = PartitionState(1, 0, REPLICAS, 1)
    for record in range(steps):
        event = choices.randrange(6)
        if event == 0:
            backup = PartitionState(leader, epoch, tuple(sorted(isr)), 1)
        elif event == 1:
            isr = {leader, *choices.sample(sorted(isr), choices.randint(1, len(isr)))}
        elif event == 2:
            joiner = choices.choice(REPLICAS)
            logs[joiner] = list(logs[leader])
            isr = isr | {joiner}
        elif event == 3:
            # The former leader is gone, with records that nobody else has.
            isr = isr - {leader} or isr
            leader, epoch = choices.choice(sorted(isr)), epoch + 1
        else:
            logs[leader].append((epoch, record))
            for follower in isr - {leader}:
                if event == 4 or choices.random() < 0.5:
                    logs[follower] = list(logs[leader])
            if event == 4:
                acknowledged = [number for _, number in logs[leader]]
    return logs, acknowledged, backup


def found(log: Log) -> FoundLog:
    return FoundLog(LogEnd(log[-1][0] if log else -1, len(log)), 1)


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_r14_the_longest_log_has_every_acknowledged_record(seed: int, steps: int) -> None:
    logs, acknowledged, backup = lived(random.Random(seed), steps)
    ends = {one: found(log) for one, log in logs.items()}
    leader = longest_log(ends, REPLICAS)
    state = recovered_state(backup, leader, ends)
    assert [number for _, number in logs[leader]][: len(acknowledged)] == acknowledged
    assert (state.leader, state.isr, state.eligible) == (-1, (leader,), ())
    assert state.leader_epoch > max(epoch for log in logs.values() for epoch, _ in [(0, 0), *log])


STATE = PartitionState(2, 5, (2,), 9, (3,), {"kept": 1})
ONE, MORE = FoundLog(LogEnd(5, 10), 1), FoundLog(LogEnd(6, 4), 3)
EXPIRED = FoundLog(LogEnd(-1, 10), 1)


def test_of_equal_logs_the_preferred_one_counts() -> None:
    assert longest_log({1: ONE, 2: ONE, 3: ONE}, (2, 3, 1)) == 2
    assert longest_log({1: ONE, 2: ONE, 3: MORE}, (2, 3, 1)) == 3
    assert longest_log({8: ONE, 7: ONE}, (2, 3)) == 7, "assigned after the backup"


def test_a_log_that_ends_before_expired_records_is_not_complete() -> None:
    assert longest_log({1: MORE, 2: EXPIRED}, (1, 2)) == 2
    assert longest_log({1: ONE, 2: EXPIRED}, (2, 1)) == 1


def test_r17_the_member_is_bound_to_the_directory_of_its_log() -> None:
    state = recovered_state(STATE, 3, {1: ONE, 2: ONE, 3: MORE})
    assert (state.isr, state.directory_epochs) == ((3,), {3: 3})
    assert (state.controller_epoch, state.extra) == (9, {"kept": 1})


def test_epochs_begin_above_all_known_ones() -> None:
    assert recovered_state(STATE, 1, {1: ONE}).leader_epoch == 1_000_005
    assert recovered_state(STATE, 1, {1: ONE, 2: MORE}).leader_epoch == 1_000_006
    assert recovered_state(None, 1, {1: ONE}, first_epoch=7).leader_epoch == 1_000_007
    with pytest.raises(NotRecoverable, match="cannot be raised"):
        recovered_state(STATE, 1, {1: FoundLog(LogEnd(MAX_EPOCH, 1), 1)})
