"""Becoming the coordinator, and ceasing to be it (seed 3 A, B; rules R10, R16).

One ZooKeeper session for each attempt. Winning is one multi that creates the ephemeral
`/consumers/coordinator` and raises `/consumers/coordinator_epoch` at the version that
was read: of two candidates one wins, and every write of an earlier coordinator fails
from then on. Whoever loses the office ends its session too, and starts anew with
nothing of what it knew: that is the seed's handleNewSession.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from leadline_common.clock import Clock
from leadline_common.settings import CoordinatorSettings
from leadline_common.zk.errors import ZkError
from leadline_coordinator.domain.records import Term, TermEnded
from leadline_coordinator.runtime.context import Office
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.maintenance import GroupMaintenance
from leadline_coordinator.runtime.metrics import CoordinatorMetrics
from leadline_coordinator.runtime.ports import BrokerGateway, Store

_log = logging.getLogger(__name__)

PAUSE_S = 0.2
"""Between two sessions."""
LOOK_AGAIN_S = 2.0
"""How often a standby looks who is the coordinator, whatever watches say."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a candidate is given: doors, clock, ids."""

    open_store: Callable[[], Awaitable[Store]]
    gateway: BrokerGateway
    clock: Clock
    new_id: Callable[[], str]


@dataclass(frozen=True, slots=True)
class ActiveCoordinator:
    """Who is the coordinator, as far as is known."""

    id: int
    url: str
    epoch: int


class CoordinatorElector:
    """One process in the contest for the office (the seed's coordinatorElector).

    `active` is who holds it, as far as is known; `coordinator` is set while it is this
    process.
    """

    def __init__(
        self, settings: CoordinatorSettings, url: str, means: Means, metrics: CoordinatorMetrics
    ) -> None:
        self.settings = settings
        self.url = url
        self.metrics = metrics
        self.store: Store | None = None
        self.active: ActiveCoordinator | None = None
        self.coordinator: Coordinator | None = None
        self._means = means
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Contend and serve until cancelled; then the session, and with it the office, ends."""
        while True:
            try:
                store = await self._means.open_store()
            except ZkError as problem:
                _log.warning("no ZooKeeper: %s", problem)
                await asyncio.sleep(PAUSE_S)
                continue
            except Exception:
                _log.exception("no ZooKeeper, by a fault")
                await asyncio.sleep(PAUSE_S)
                continue
            await self._handle_new_session(store)
            await asyncio.sleep(PAUSE_S)

    async def _handle_new_session(self, store: Store) -> None:
        """Stand for office with this session until it is over; nothing known before counts."""
        try:
            self.store = store
            await self._elect(store)
        except (TermEnded, ZkError) as end:
            _log.warning("this session is over: %s", end)
        except Exception:
            _log.exception("this session is over by a fault")
        finally:
            self.coordinator = self.active = self.store = None
            await _close(store)

    async def _elect(self, store: Store) -> None:
        """Wait for the office to be free, take it, and serve.

        Raises:
            TermEnded: the term is over.
            ZkError: ZooKeeper was lost.

        """
        await store.prepare()
        store.on_reconnected(self._changed.set)
        while not store.lost.is_set():
            self._changed.clear()
            holder = await store.holder(self._changed.set)
            term: Term | None = None
            if holder is None:
                wall_ms = self._means.clock.wall_ms()
                term = await store.claim(self.settings.coordinator_id, self.url, wall_ms)
            elif holder.session_id == store.session_id:  # a claim whose answer was lost (rule R7)
                term = await store.term()
            else:
                epoch = (await store.term()).epoch
                self.active = ActiveCoordinator(holder.id, holder.url, epoch)
                await self._wait(store)
            if term is not None:
                await self._serve(store, term)
        raise TermEnded("the ZooKeeper session is over")

    async def _wait(self, store: Store) -> None:
        """Wait until the office may be free, or the session is over."""
        waits = [
            asyncio.create_task(self._changed.wait()),
            asyncio.create_task(store.lost.wait()),
        ]
        try:
            await asyncio.wait(waits, timeout=LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _serve(self, store: Store, term: Term) -> None:
        _log.info("active with coordinator epoch %d", term.epoch)
        self.metrics.terms.inc()
        office = Office(
            store=store,
            gateway=self._means.gateway,
            term=term,
            settings=self.settings,
            clock=self._means.clock,
            metrics=self.metrics,
            new_id=self._means.new_id,
        )
        self.active = ActiveCoordinator(self.settings.coordinator_id, self.url, term.epoch)
        self.coordinator = Coordinator(office)
        upkeep = asyncio.create_task(
            GroupMaintenance(self.coordinator).run(), name="coordinator-upkeep"
        )
        try:
            await self.coordinator.run()
        finally:
            upkeep.cancel()
            await asyncio.gather(upkeep, return_exceptions=True)


async def _close(store: Store) -> None:
    """End a session whatever happens: one that lingers would keep the office from everybody."""
    closing = asyncio.ensure_future(store.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await closing
        raise
