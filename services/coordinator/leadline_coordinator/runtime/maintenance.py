"""What a coordinator sees to from time to time: groups past their time, and the lag of all."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from leadline_client.errors import LeadlineError, UnknownGroup
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.group_manager import GroupManager
from leadline_coordinator.runtime.offsets import GroupOffsets

_log = logging.getLogger(__name__)

_EXPIRED = "without members for offsets.retention.ms"


class GroupMaintenance:
    """The chores of one term."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._context = coordinator.context
        self._offsets = GroupOffsets(coordinator)

    async def run(self) -> None:
        """Do the chores, each at its interval, for ever."""
        await self._coordinator.ready.wait()
        await asyncio.gather(self._expire_forever(), self._measure_forever())

    async def expire(self) -> list[str]:
        """Delete groups that have been without members for offsets.retention.ms; return them."""
        retention_ms = self._context.settings.offsets_retention_ms
        me = f"coordinator-{self._context.settings.coordinator_id}"
        expired = []
        for desk in list(self._coordinator.groups.values()):
            if retention_ms < 0 or not self._is_idle_since(desk, retention_ms):
                continue
            try:
                await self._coordinator.delete(desk.group.name, actor=me, reason=_EXPIRED)
            except LeadlineError as problem:
                _log.warning("group %r is not deleted yet: %s", desk.group.name, problem)
            else:
                expired.append(desk.group.name)
        if expired:
            _log.info("%d groups are past their time and deleted: %s", len(expired), expired[:10])
        return expired

    async def measure(self) -> None:
        """Set the lag of every group in the metrics."""
        gauge = self._context.metrics.group_lag
        groups, in_office = self._coordinator.groups, self._coordinator.ready
        for name in [name for name, desk in groups.items() if desk.committer.offsets]:
            with suppress(UnknownGroup):  # brokers are asked: it may be gone before, or after that
                rows = await self._offsets.lag(name)
                if name in groups and in_office.is_set():
                    gauge.labels(name).set(sum(row.lag or 0 for row in rows))

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
                _log.info("the lag could not be measured: %s", problem)

    def _is_idle_since(self, desk: GroupManager, retention_ms: int) -> bool:
        """Tell whether a group has had neither members nor commits for so long."""
        name, since_ms = desk.group.name, desk.group.empty_since_wall_ms
        if desk.group.is_active or name in self._coordinator.groups_being_rebalanced:
            return False
        last_ms = max((one.time_ms for one in desk.committer.offsets.values()), default=0)
        idle_since_ms = max(since_ms or 0, last_ms)
        return self._context.clock.wall_ms() - idle_since_ms > retention_ms
