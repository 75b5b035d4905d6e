"""A follower that truncates its log, or begins again: the files go in the background."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from leadline_broker.adapters.log import durability
from leadline_broker.adapters.log.errors import DiskFull
from leadline_broker.domain.effects import Effect, ResetLog, Truncate
from leadline_broker.domain.replica import Replica
from leadline_broker.runtime.replication.effect_executor import EffectExecutor, PendingAcks
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_common.settings import BrokerSettings
from tests.unit.broker.log_support import batch, open_log
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("effect", [Truncate(3), ResetLog(100)])
def test_the_files_of_removed_segments_are_removed_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Effect, *, is_full: bool
) -> None:
    """Their space is what a full disk lacks."""
    log = open_log(tmp_path, segment_bytes=100)
    for number in range(8):
        log.append(batch(number, b"x" * 50))
    settings = TopicSettings(BrokerSettings(broker_id=1, log_dir=str(tmp_path))).of({})
    replica = Replica(broker_id=1, topic_id=TOPIC_ID, partition=0, log=log)
    background = list[Callable[[], None]]()
    executor = EffectExecutor(
        PendingAcks(), lambda _: None, background.append, lambda _records, _committed: None
    )

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if is_full:
        monkeypatch.setattr(durability, "write_epochs", no_space)
        monkeypatch.setattr(EffectExecutor, "_flush", lambda *_: None)
    with pytest.raises(DiskFull) if is_full else nullcontext():
        executor.execute(Partition(TOPIC, TOPIC_ID, 0, log, replica, settings), [effect])

    assert list(log.directory.glob("*.deleted"))
    for work in background:
        work()
    assert not list(log.directory.glob("*.deleted"))
