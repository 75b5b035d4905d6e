"""Every controller's own history: follow the outbox, store it, say how far one has come.

Active or standby, each controller reads every audit entry and stores it in its own
database, so the history outlives any controller and the disk of any one of them.
Entries leave the outbox only when they are stored (`trimming.py`); who comes late,
or begins with an empty database, gets what has left from another controller.

None of this is in the way of deciding: the historian runs beside the engine, and
stores nothing while brokers wait to be told of new leaders.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from leadline_client.errors import LeadlineError
from leadline_common.clock import Clock
from leadline_common.settings import ControllerSettings
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.history import HISTORY_GAP, AuditRecord, ReaderPosition
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.ports import History, Outbox, PeerAuditClient

_log = logging.getLogger(__name__)

Calm: TypeAlias = Callable[[], Awaitable[None]]
"""Waits until nobody is in a hurry."""

BATCH = 32
"""Entries in one read: an entry about a thousand partitions is 100 KB."""
LOOK_AGAIN_S = 2.0
"""How often to look for entries, whatever watches say (rule R8)."""
NOTE_EVERY_S = 1.0
"""How often, at most, to publish how far one has come."""
PATIENCE_S = 5.0
"""How long storing waits for a failover, at most."""
RETRY_S = 1.0
SILENCE_S = 60.0
"""How long to ask again a controller that has what is missing and is silent: it may be starting."""
FORGET_EVERY_S = 600.0


@dataclass(frozen=True, slots=True)
class AuditStores:
    """Where histories are: this controller's own, and the others'."""

    own: History
    others: PeerAuditClient


class AuditReplicator:
    """Keeps the history of one controller process, session after session.

    `stored` is the newest id in the database; -1 before the first.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        url: str,
        library: AuditStores,
        clock: Clock,
        metrics: ControllerMetrics,
    ) -> None:
        self.history = library.own
        self.stored = -1
        self.oldest = -1
        self._others = library.others
        self._settings = settings
        self._url = url
        self._clock = clock
        self._metrics = metrics
        self._outbox: Outbox | None = None
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._noted: ReaderPosition | None = None
        self._noted_ms = 0
        self._forgot_ms = 0
        self._silent_since_ms: int | None = None

    @property
    def noted(self) -> int:
        """The newest id that others were told is in the database; -1 before the first."""
        return -1 if self._noted is None else self._noted.stored

    async def follow(self, outbox: Outbox, cluster_id: str, calm: Calm) -> None:
        """Store entries as they are written, until cancelled; only when it is `calm`.

        What goes wrong is logged and tried again: the history must never end a term.
        """
        self._outbox = outbox
        try:
            while True:
                try:
                    await self.history.open(cluster_id)
                    self.oldest, self.stored = await self.history.ids()
                    self._tell_progress()
                    while True:
                        await self._step(outbox, calm)
                except ZkError as problem:
                    _log.info("the history waits for ZooKeeper: %s", problem)
                except Exception:
                    _log.exception("the history cannot be kept at the moment")
                await asyncio.sleep(RETRY_S)
        finally:
            self._outbox = None

    async def catch_up(self, within_s: float) -> bool:
        """Wait until all that is in the outbox now is stored; False where that takes longer."""
        try:
            async with asyncio.timeout(within_s):
                while (outbox := self._outbox) is None:
                    await self._progress.wait()
                following, _ = await outbox.extent()
                while self.stored < following - 1:
                    self._wake.set()
                    await self._progress.wait()
        except (TimeoutError, ZkError):
            return False
        return True

    # -- within ----------------------------------------------------------------

    async def _step(self, outbox: Outbox, calm: Calm) -> None:
        """Store what is next, or wait for it."""
        records = await outbox.read(self.stored + 1, BATCH)
        if records:
            await self._let_pass(calm)
            await self._store(records)
        elif not await self._fill_gap(outbox):
            await self._note(outbox)
            await self._forget_old()
            await self._await_entry(outbox)
        await self._note(outbox, every_s=NOTE_EVERY_S)

    async def _let_pass(self, calm: Calm) -> None:
        """Let brokers hear of their new leaders first, but do not wait for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await calm()

    async def _store(self, records: list[AuditRecord]) -> None:
        await self.history.append(records)
        self.stored = records[-1].id
        if self.oldest < 0:
            self.oldest = records[0].id
        self._metrics.audit_stored.inc(len(records))
        self._tell_progress()

    def _tell_progress(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    async def _await_entry(self, outbox: Outbox) -> None:
        """Wait until the next entry may be there."""
        self._wake.clear()
        if await outbox.watch(self.stored + 1, self._wake.set):
            return
        try:
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _fill_gap(self, outbox: Outbox) -> bool:
        """Get what has left the outbox from another controller; False where nothing has.

        It may have been trimmed, or somebody may have removed entries in the middle.
        """
        following, _ = await outbox.extent()
        if self.stored + 1 >= following:
            return False
        end = next((number for number in await outbox.ids() if number > self.stored), following)
        if end <= self.stored + 1:
            return False
        first = await self._ask_others(outbox, end)
        if first is None:
            await asyncio.sleep(RETRY_S)
        elif first > self.stored + 1:
            await self._give_up(self.stored + 1, first)
        return True

    async def _ask_others(self, outbox: Outbox, until: int) -> int | None:
        """Copy the entries before `until` from whoever has them.

        Return the first id from there on that anybody has; None where somebody who has
        what is missing does not answer, and should be asked again.
        """
        first, is_silent = until, False
        readers = sorted(await outbox.readers(), key=lambda reader: (reader.oldest, -reader.stored))
        for reader in readers:
            is_other = reader.reader != self._settings.controller_id
            if is_other and self.stored < min(reader.stored, until - 1):
                try:
                    first = min(first, await self._copy(reader.url, until))
                except LeadlineError as problem:
                    is_silent = True
                    _log.warning("controller %d gave no history: %s", reader.reader, problem)
        if self.stored >= until - 1 or not is_silent:
            self._silent_since_ms = None
            return max(first, self.stored + 1)
        now_ms = self._clock.monotonic_ms()
        self._silent_since_ms = self._silent_since_ms or now_ms
        return None if now_ms - self._silent_since_ms < 1000 * SILENCE_S else first

    async def _copy(self, url: str, until: int) -> int:
        """Store what a controller has before `until`; return where it goes on after that."""
        async for records in self._others.export(url, self.stored + 1):
            first = records[0]
            if first.id > self.stored + 1 and first.entry.kind != HISTORY_GAP:
                return first.id  # it has deleted what is older, and others may not have
            await self._store(records)
            if self.stored >= until - 1:
                break
        return until

    async def _give_up(self, first: int, end: int) -> None:
        """Say in the history itself that a part of it is missing."""
        reason = f"entries {first} to {end - 1} had left the outbox, and nobody else has them"
        _log.error("the history has a gap: %s", reason)
        me = f"controller-{self._settings.controller_id}"
        entry = AuditEntry(self._clock.wall_ms(), "", me, HISTORY_GAP, "unknown", reason)
        await self._store([AuditRecord(end - 1, 0, entry)])

    async def _note(self, outbox: Outbox, every_s: float = 0) -> None:
        """Publish how far this controller has come, where that is news."""
        now_ms = self._clock.monotonic_ms()
        oldest = self.oldest if self.oldest >= 0 else self.stored + 1
        me = ReaderPosition(self._settings.controller_id, self._url, oldest, self.stored)
        if me == self._noted or now_ms - self._noted_ms < 1000 * every_s:
            return
        await outbox.note(me)
        self._noted, self._noted_ms = me, now_ms

    async def _forget_old(self) -> None:
        """Delete what is older than audit.retention.ms."""
        keep_ms, now_ms = self._settings.audit_retention_ms, self._clock.monotonic_ms()
        if keep_ms < 0 or now_ms - self._forgot_ms < 1000 * FORGET_EVERY_S:
            return
        self._forgot_ms = now_ms
        gone = await self.history.forget_before(self._clock.wall_ms() - keep_ms)
        if gone:
            self.oldest, _ = await self.history.ids()
            _log.info("%d audit entries past their retention are deleted", gone)
