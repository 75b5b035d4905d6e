"""What a reader makes of a refusal that says its log was truncated (rule R15, KIP-320)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from leadline_client.cache import MetadataCache
from leadline_client.core import ClientCore
from leadline_client.errors import LogTruncated
from leadline_client.flows import Flow
from leadline_client.payloads import FetchedBatches
from leadline_client.reading import FetchPosition, ReadLimits
from leadline_client.wire import EpochEnd, LogPosition

READ = LogPosition(20, leader_epoch=3)
REFUSED_BY = 5


class RefusingCore:
    """A leader of epoch 5 refuses the position; another one says where epoch 3 ends."""

    def __init__(self, end: EpochEnd) -> None:
        self.cache = MetadataCache()
        self.end = end

    def fetch_batches(self, *_: object, **__: object) -> Flow[FetchedBatches]:
        yield from ()
        raise LogTruncated.below("t", 0, READ, (10, 3), REFUSED_BY, "id")

    def epoch_end(self, *_: object) -> Flow[EpochEnd]:
        yield from ()
        return self.end


def read(end: EpochEnd) -> list[Any]:
    reader = FetchPosition(cast("ClientCore", RefusingCore(end)), "t", 0, READ)
    with pytest.raises(StopIteration) as ended:
        next(reader.read(ReadLimits()))
    assert reader.offset == READ.offset
    found: list[Any] = ended.value.value
    return found


def test_a_newer_leader_that_has_the_log_after_all_is_read_on_from() -> None:
    assert read(EpochEnd(3, 25, leader_epoch=REFUSED_BY + 1)) == []


def test_the_leader_that_refuses_is_believed() -> None:
    with pytest.raises(LogTruncated):
        read(EpochEnd(3, 25, leader_epoch=REFUSED_BY))


def test_a_newer_leader_that_lacks_the_log_too_tells_the_divergence() -> None:
    with pytest.raises(LogTruncated) as truncated:
        read(EpochEnd(3, 15, leader_epoch=REFUSED_BY + 1))

    assert truncated.value.details["leader_epoch"] == REFUSED_BY + 1
    assert truncated.value.details["divergence_offset"] <= 15
