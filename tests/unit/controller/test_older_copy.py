"""A controller's history shows whether ZooKeeper is an older copy."""

from __future__ import annotations

from typing import cast

import pytest

from leadline_common.cluster_id import OlderCopy
from leadline_common.settings import ControllerSettings
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.history import CLUSTER_RESTORED, AuditRecord
from leadline_controller.runtime.audit.replication import AuditReplicator
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.ports import AuditHistory, Outbox, PeerAuditClient
from tests.support.manual_clock import ManualClock
from tests.unit.controller.test_standby_history import Entries, Stored


class Damaged(Stored):
    """A history that cannot be opened."""

    async def open(self, cluster_id: str) -> None:
        raise RuntimeError(f"not of {cluster_id}")


async def compare(history: Stored, stored: int, present: int, *, restored: bool = False) -> None:
    """Compare a history of some entries with an outbox of some others."""
    entries = Entries()
    for _ in range(present):
        entries.write()
    if restored:
        entry = AuditEntry(time=0, cause="c", actor="operator", kind=CLUSTER_RESTORED)
        entries.records[-1] = AuditRecord(present - 1, 100, entry)
    entry = AuditEntry(time=0, cause="c", actor="controller-1", kind="topic_created")
    history.records += [AuditRecord(number, 100, entry) for number in range(stored)]
    replicator = AuditReplicator(
        ControllerSettings(controller_id=2),
        "http://controller",
        cast("AuditHistory", history),
        cast("PeerAuditClient", None),
        ManualClock(),
        ControllerMetrics(),
    )
    await replicator.require_no_older_copy(cast("Outbox", entries), "cluster")


@pytest.mark.parametrize(("stored", "present"), [(5, 4), (5, 1), (1, 0)])
async def test_a_zookeeper_that_lacks_an_entry_of_the_history_is_refused(
    stored: int, present: int
) -> None:
    with pytest.raises(OlderCopy, match=f"next audit id is {present}, but the history has"):
        await compare(Stored(), stored, present)


@pytest.mark.parametrize(("stored", "present"), [(0, 0), (0, 3), (3, 3), (3, 9)])
async def test_one_that_has_all_of_them_is_used(stored: int, present: int) -> None:
    await compare(Stored(), stored, present)


async def test_what_a_restore_has_written_is_used() -> None:
    await compare(Stored(), 9, 2, restored=True)


async def test_a_copy_that_was_made_after_a_restore_is_an_older_one_all_the_same() -> None:
    """It may have the entry of that restore, which the history has as well."""
    history = Stored()
    entry = AuditEntry(time=0, cause="c", actor="operator", kind=CLUSTER_RESTORED)
    history.records = [AuditRecord(1, 100, entry)]
    with pytest.raises(OlderCopy):
        await compare(history, 9, 2, restored=True)


async def test_a_history_that_cannot_be_opened_proves_nothing() -> None:
    await compare(Damaged(), 9, 2)
