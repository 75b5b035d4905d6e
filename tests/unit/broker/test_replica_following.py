"""Following: where a follower fetches from, and which answers it uses (rules R2-R4)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from leadline_broker.domain.effects import (
    AppendFetched,
    Flush,
    HighWatermarkAdvanced,
    ResetLog,
    Truncate,
)
from leadline_broker.domain.replica import Replica
from leadline_broker.domain.rules import Rules
from leadline_client.errors import FencedLeaderEpoch, NotLeader, OffsetOutOfRange
from leadline_common.rpc import FetchedRow, FetchRow
from tests.unit.broker.replicas import MemoryLog, replica, row

NEWS: dict[str, dict[str, Any]] = {
    "records": {"records": b"batch"},
    "divergence": {"diverging_epoch": 0, "diverging_end": 0},
    "watermark": {"high_watermark": 3},
    "out of range": {"error_code": OffsetOutOfRange.code, "log_start_offset": 9},
}
"""What an answer may bring."""


def following(
    epochs: list[int], *, high_watermark: int = 0, rules: Rules | None = None
) -> tuple[Replica, MemoryLog]:
    made, log = replica(epochs, high_watermark=high_watermark, rules=rules or Rules())
    made.on_leader_and_isr(row(2, 5), 0)
    return made, log


def answer_to(made: Replica, high_watermark: int = 0) -> FetchedRow:
    asked = made.fetch_row()
    assert asked is not None
    return FetchedRow(
        asked.partition,
        asked.leader_epoch,
        asked.fetch_offset,
        asked.last_epoch,
        0,
        high_watermark,
        0,
    )


def test_it_asks_from_its_durable_end_with_its_last_epoch() -> None:
    made, _ = following([1, 3, 3])

    assert made.fetch_row() == FetchRow(0, 5, 3, 3)


def test_it_asks_nothing_until_its_log_is_durable() -> None:
    made, log = following([1, 3])
    log.append([3], durable=False)

    assert made.fetch_row() is None
    log.durable_end_offset = 3
    assert made.fetch_row() == FetchRow(0, 5, 3, 3)


def test_without_rule_r4_it_does_not_wait_for_the_disk() -> None:
    made, log = following([1, 3], rules=Rules(r4_durable_ends=False))
    log.append([3], durable=False)

    assert made.fetch_row() == FetchRow(0, 5, 3, 3)


def test_records_are_appended_and_flushed() -> None:
    made, _ = following([1])

    effects = made.on_fetch_answer(replace(answer_to(made, 9), records=b"batch"))

    assert effects == [AppendFetched(b"batch", 9), Flush()]


def test_an_empty_answer_brings_the_high_watermark() -> None:
    made, _ = following([1, 1, 1])

    assert made.on_fetch_answer(answer_to(made, 2)) == [HighWatermarkAdvanced(2)]
    assert made.state.high_watermark == 2


@pytest.mark.parametrize("leader_high_watermark", [3, 4, 1000])
def test_the_high_watermark_never_passes_the_log_end(leader_high_watermark: int) -> None:
    made, _ = following([1, 1, 1])

    made.on_fetch_answer(answer_to(made, leader_high_watermark))

    assert made.state.high_watermark == 3


@pytest.mark.parametrize("leader_high_watermark", [0, 1, 2])
def test_the_high_watermark_never_falls(leader_high_watermark: int) -> None:
    made, _ = following([1, 1, 1], high_watermark=2)

    assert made.on_fetch_answer(answer_to(made, leader_high_watermark)) == []
    assert made.state.high_watermark == 2


@pytest.mark.parametrize(
    "change",
    [
        {"leader_epoch": 4},
        {"leader_epoch": 6},
        {"fetch_offset": 2},
        {"fetch_offset": 4},
        {"last_epoch": 0},
        {"last_epoch": 2},
        {"partition": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", list(NEWS))
def test_answers_that_do_not_fit_change_nothing(kind: str, change: dict[str, int]) -> None:
    made, _ = following([1, 1, 1])

    assert made.on_fetch_answer(replace(answer_to(made), **NEWS[kind], **change)) == []
    assert made.state.high_watermark == 0


def test_an_answer_is_used_once() -> None:
    made, log = following([1, 2, 2])
    answer = replace(answer_to(made), diverging_epoch=1, diverging_end=1)
    assert made.on_fetch_answer(answer) == [Truncate(1)]
    log.truncate(1)
    log.append([3, 3])

    assert made.on_fetch_answer(answer) == []


def test_without_rule_r3_a_late_answer_cuts_again() -> None:
    made, log = following([1, 2, 2], rules=Rules(r3_correlated=False))
    answer = replace(answer_to(made), diverging_epoch=1, diverging_end=1)
    log.truncate(1)
    log.append([3, 3])

    assert made.on_fetch_answer(answer) == [Truncate(1)]


@pytest.mark.parametrize(
    ("log", "epoch", "end", "cut"),
    [
        ([1, 1, 2, 2], 2, 3, 3),
        ([1, 1, 2, 2], 1, 1, 1),
        ([1, 1, 2, 2], 1, 9, 2),
        ([1, 1, 4, 4], 3, 9, 2),
        ([2, 2], 1, 9, 0),
        ([2, 2], -1, 0, 0),
    ],
)
def test_it_cuts_to_where_both_logs_can_agree(
    log: list[int], epoch: int, end: int, cut: int
) -> None:
    made, _ = following(log)

    effects = made.on_fetch_answer(
        replace(answer_to(made), diverging_epoch=epoch, diverging_end=end)
    )

    assert effects == [Truncate(cut)]


def test_a_cut_takes_the_high_watermark_along() -> None:
    made, _ = following([1, 1, 2], high_watermark=3)
    answer = replace(answer_to(made), diverging_epoch=1, diverging_end=2)

    assert made.on_fetch_answer(answer) == [Truncate(2, committed=1)]

    assert made.state.high_watermark == 2


def test_out_of_range_restarts_the_log() -> None:
    made, _ = following([1, 1])

    effects = made.on_fetch_answer(
        replace(answer_to(made), error_code=OffsetOutOfRange.code, log_start_offset=40)
    )

    assert effects == [ResetLog(40), Flush()]
    assert made.state.high_watermark == 40


@pytest.mark.parametrize(("start", "committed"), [(0, 2), (1, 1), (2, 0), (9, 0)])
def test_it_knows_what_was_committed_where_it_begins_again(start: int, committed: int) -> None:
    """Before the leader's log start nothing is missing: retention has removed it."""
    made, _ = following([1, 1, 1], high_watermark=2)

    effects = made.on_fetch_answer(
        replace(answer_to(made), error_code=OffsetOutOfRange.code, log_start_offset=start)
    )

    assert effects == [ResetLog(start, committed=committed), Flush()]


@pytest.mark.parametrize("code", [NotLeader.code, FencedLeaderEpoch.code])
def test_refusals_change_nothing(code: int) -> None:
    made, _ = following([1, 1])

    assert made.on_fetch_answer(replace(answer_to(made, 2), error_code=code, records=b"x")) == []
    assert made.state.high_watermark == 0


@pytest.mark.parametrize("leader", [1, 3])
def test_after_a_new_grant_answers_of_the_old_epoch_are_ignored(leader: int) -> None:
    made, _ = following([1, 1])
    answer = replace(answer_to(made, 2), records=b"batch")

    made.on_leader_and_isr(row(leader, 6), 0)

    assert made.on_fetch_answer(answer) == []


def test_fenced_it_uses_no_answer() -> None:
    made, _ = following([1, 1])
    answer = answer_to(made, 2)

    made.step_down()

    assert made.on_fetch_answer(answer) == []
    assert made.on_fetched(2) == []
