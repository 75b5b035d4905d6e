"""Periodic work of the active coordinator: expire idle groups, measure lag."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog

from leadline_client.errors import LeadlineError, UnknownGroup
from leadline_common.keep_running import keep_running
from leadline_common.refusals import INTERVAL_MS
from leadline_common.slices import timed_turns
from leadline_coordinator.runtime.audit import write_counted_refusals
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.group_manager import GroupManager
from leadline_coordinator.runtime.offsets import GroupOffsets, PartitionLag

logger = structlog.get_logger(__name__)

_EXPIRED = "without members for offsets.retention.ms"
_MAX_NAMED = 10
_RELOAD_S = 5.0
"""How often to look whether groups that may not be read may be read again."""


class GroupMaintenance:
    """The periodic work of one term."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._context = coordinator.context
        self._offsets = GroupOffsets(coordinator)

    async def run(self) -> None:
        """Do the work at its intervals until cancelled."""
        await self._coordinator.ready.wait()
        await asyncio.gather(
            keep_running(self._expire_forever, "expiry of groups"),
            keep_running(self._measure_forever, "lag of groups"),
            keep_running(self._reload_forever, "groups that may not be read"),
            keep_running(self._record_refusals, "refusals", pause_s=INTERVAL_MS / 1000),
        )

    async def expire(self) -> list[str]:
        """Delete groups that had no members for `offsets.retention.ms`; return their names."""
        retention_ms = self._context.settings.offsets_retention_ms
        actor = f"coordinator-{self._context.settings.coordinator_id}"
        expired = []
        groups = list(self._coordinator.groups.values()) if retention_ms >= 0 else []
        async for some in timed_turns(groups, self._context.clock.monotonic_ms):
            for manager in some:
                if not self._is_idle_for(manager, retention_ms):
                    continue
                name = manager.group.name
                try:
                    await self._coordinator.delete(name, actor=actor, reason=_EXPIRED)
                except LeadlineError as problem:
                    logger.warning("could not delete a group", group=name, reason=str(problem))
                else:
                    expired.append(name)
        if expired:
            logger.info("groups expired", count=len(expired), groups=expired[:_MAX_NAMED])
        return expired

    async def measure(self) -> None:
        """Measure the lag of every group that has committed offsets, for the metrics."""
        measured = self._context.metrics.groups.lag
        groups, ready = self._coordinator.groups, self._coordinator.ready
        for name, manager in list(groups.items()):
            if not manager.committer.offsets:
                measured.pop(name, None)  # its last offset was deleted, perhaps with the topic
                continue
            with suppress(UnknownGroup):  # it may be deleted before or while brokers are asked
                found = _by_topic(await self._offsets.lag(name), measured.get(name, {}))
                if found and name in groups and ready.is_set():
                    measured[name] = found

    async def reload(self) -> None:
        """Restore the groups that could not be loaded, and can be read now."""
        store = self._context.store.groups
        for name in list(store.unreadable):
            found = await store.load_again(name)
            if found is not None and self._coordinator.ready.is_set():
                self._coordinator.restore(found)
                self._coordinator.on_group_member_change(name)
                logger.info("group loaded: it can be read again", group=name)

    async def _reload_forever(self) -> None:
        while True:
            await asyncio.sleep(_RELOAD_S)
            await self.reload()

    async def _expire_forever(self) -> None:
        while True:
            await asyncio.sleep(self._context.settings.offsets_retention_check_interval_ms / 1000)
            await self.expire()

    async def _measure_forever(self) -> None:
        interval_ms = self._context.settings.group_lag_interval_ms
        while interval_ms:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await self.measure()
            except LeadlineError as problem:
                logger.info("could not measure the lag", reason=str(problem))

    async def _record_refusals(self) -> None:
        await write_counted_refusals(self._context)

    def _is_idle_for(self, manager: GroupManager, retention_ms: int) -> bool:
        """Tell whether a group has had neither members nor commits for `retention_ms`.

        It may also be gone by now, and there may be another one of its name.
        """
        name, since_ms = manager.group.name, manager.group.empty_since_wall_ms
        is_current = self._coordinator.groups.get(name) is manager
        is_rebalanced = name in self._coordinator.groups_being_rebalanced
        if not is_current or manager.group.is_active or manager.is_being_deleted or is_rebalanced:
            return False
        latest_ms = self._context.time.earliest_ms() - retention_ms
        return (since_ms or 0) < latest_ms and manager.committer.last_commit_ms < latest_ms


def _by_topic(rows: Sequence[PartitionLag], before: Mapping[str, int]) -> Mapping[str, int]:
    """Return the lag of each topic; a partition without a committed offset counts as 0.

    While the end of a partition is unknown, its topic keeps the lag that it had `before`, or has
    none: a lower one would say that the group has caught up.
    """
    unknown = {row.topic for row in rows if row.end is None}
    found = Counter({topic: before[topic] for topic in unknown & before.keys()})
    for row in rows:
        if row.topic not in unknown:
            found[row.topic] += row.lag or 0
    return found
