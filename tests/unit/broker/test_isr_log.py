"""ISR changes in the log: as few lines as a person needs, with every partition in them."""

from __future__ import annotations

from collections.abc import Callable

from structlog.testing import capture_logs

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.runtime.replication.isr_log import IsrLog
from leadline_client.wire import TopicPartition


def shrunk(isr: tuple[int, ...]) -> IsrProposal:
    return IsrProposal(1, 1, isr, (), 1, reason="lagging")


def test_partitions_that_change_alike_are_logged_together() -> None:
    waiting: list[Callable[[], None]] = []
    log = IsrLog(waiting.append)
    for number in range(3_000):
        log.add(TopicPartition("orders", number), shrunk((1, 2) if number % 2 else (1, 3)))
    log.add(TopicPartition("payments", 7), shrunk((1, 2)))
    with capture_logs() as lines:
        for flush in waiting:
            flush()

    first, second = lines
    assert (first["isr"], first["reason"]) == ((1, 3), "lagging")
    assert first["partitions"] == {"orders": list(range(0, 3_000, 2))}
    assert second["partitions"] == {"orders": list(range(1, 3_000, 2)), "payments": [7]}


def test_a_later_change_is_logged_again() -> None:
    waiting: list[Callable[[], None]] = []
    log = IsrLog(waiting.append)
    with capture_logs() as lines:
        for isr in ((1, 2), (1, 2, 3)):
            log.add(TopicPartition("orders", 0), shrunk(isr))
            waiting.pop()()

    assert [line["isr"] for line in lines] == [(1, 2), (1, 2, 3)]
    assert waiting == []
