"""Where a truncated log differs from what a reader has read: against a model of whole logs."""

from __future__ import annotations

from itertools import pairwise, takewhile

from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.domain.epochs import EpochHistory
from leadline_client.batch_header import BatchHeader
from leadline_client.read_history import ReadHistory
from leadline_client.wire import EpochEnd, LogPosition

Log = list[int]
"""The leader epoch of each record: with the offset it names the record, and all before it."""


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """Return two logs of one partition; each epoch has one leader, which writes one sequence.

    Each leader begins with a prefix of an earlier leader's log, and replicas copy prefixes.
    """
    leaders: list[Log] = [[]]
    for epoch in range(draw(st.integers(1, 6))):
        base = draw(st.sampled_from(leaders))
        kept = draw(st.integers(0, len(base)))
        leaders.append(base[:kept] + [epoch] * draw(st.integers(0, 6)))
    first, second = draw(st.sampled_from(leaders)), draw(st.sampled_from(leaders))
    return first[: draw(st.integers(0, len(first)))], second


def shared_length(first: Log, second: Log) -> int:
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def epochs_of(log: Log) -> EpochHistory:
    starts = [0, *(offset + 1 for offset, (a, b) in enumerate(pairwise(log)) if a != b)]
    return EpochHistory((log[start], start) for start in starts if log)


def header(base: int, end: int, epoch: int) -> BatchHeader:
    return BatchHeader(0, 61, base, epoch, 0, 0, end - base - 1, 0, 0, -1, -1, -1, end - base)


def divergence(history: ReadHistory, log: Log) -> int:
    """Compare as a reader does, one epoch after the other."""
    answers = epochs_of(log)
    shared = history.copy()
    while (epoch := shared.epoch_before(shared.offset)) is not None:
        if not shared.truncate(EpochEnd(*answers.end_of(epoch, len(log)), leader_epoch=9)):
            break
    return shared.offset


def has_read(log: Log, position: LogPosition) -> bool:
    assert position.leader_epoch is not None
    return epochs_of(log).has_read(
        position.offset, position.leader_epoch, log_start_offset=0, log_end_offset=len(log)
    )


@given(logs(), st.lists(st.integers(1, 8), max_size=6))
def test_defect_02_a_reader_finds_exactly_where_a_log_differs_from_what_it_read(
    both: tuple[Log, Log], sizes: list[int]
) -> None:
    read, log = both
    history = ReadHistory(LogPosition(0))
    for size in [*sizes, len(read)]:
        end = min(len(read), history.offset + size)
        headers = [header(n, n + 1, read[n]) for n in range(history.offset, end)]
        history.advance(headers, LogPosition(end, read[end - 1] if end else None))
    assert [history.epoch_before(n + 1) for n in range(len(read))] == read
    shared = shared_length(read, log)
    if read:
        assert has_read(log, history.position_at(len(read))) == (shared == len(read))
    assert divergence(history, log) == shared


@given(logs(), st.data())
def test_defect_02_a_committed_position_is_found_truncated_exactly_if_it_is(
    both: tuple[Log, Log], data: st.DataObject
) -> None:
    """Only the last record's epoch is known, so the logs may differ before what is found."""
    read, log = both
    if not read:
        return
    history = ReadHistory(LogPosition(len(read), read[-1]))
    shared = shared_length(read, log)
    assert has_read(log, history.position_at(len(read))) == (shared == len(read))
    found = divergence(history, log)
    assert (found == len(read)) == (shared == len(read))
    assert found >= shared
    if read[-1] in log:
        assert found == shared
    start = data.draw(st.integers(0, len(log)))
    history.forget_before(start)
    assert history.epoch_before(len(read)) == read[-1]


def test_what_was_not_read_has_no_epoch() -> None:
    history = ReadHistory(LogPosition(20, 1))
    assert [history.epoch_before(offset) for offset in (19, 20, 21)] == [None, 1, None]
    history.advance([header(20, 30, 1), header(30, 40, 4)], LogPosition(40, 4))
    assert [history.epoch_before(offset) for offset in (19, 20, 30, 31, 40)] == [None, 1, 1, 4, 4]
    history.forget_before(31)
    assert [history.epoch_before(offset) for offset in (30, 31, 40)] == [None, 4, 4]


def test_a_log_that_retention_has_moved_past_the_position_is_read_from_its_start() -> None:
    history = ReadHistory(LogPosition(20, 5))
    assert history.truncate(EpochEnd(-1, 12, leader_epoch=7))
    assert history.position_at(history.offset) == LogPosition(12)
