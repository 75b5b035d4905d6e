"""Becoming the active controller, and ceasing to be it (seed 1 D; seed 4; rules R10, R11).

One ZooKeeper session for each attempt to rule. Winning is one multi that creates
the ephemeral `/controller` and raises `/controller_epoch` at the version that was
read, so that of two candidates one wins, and every write of an earlier controller
fails from then on. Whoever loses the office, for whatever reason, ends its session
too: nothing of an old term can be taken for the new one.

A `/controller` node of this process's own earlier life is nothing special: it is
another session's, and goes when that session does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import msgspec

from leadline_common import znodes
from leadline_common.cause import new_cause
from leadline_common.clock import Clock
from leadline_common.rpc import ControllerRow
from leadline_common.settings import ControllerSettings
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry, ControllerRegistration
from leadline_controller.domain.cluster import ClusterPolicy
from leadline_controller.domain.state import Term
from leadline_controller.runtime.active_controller import ActiveController, load_image
from leadline_controller.runtime.audit.replication import AuditReplicator
from leadline_controller.runtime.engine.context import ControllerContext
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.engine.state_writer import TermEnded
from leadline_controller.runtime.ports import CommandGateway, ControllerStore

_log = logging.getLogger(__name__)

PAUSE_S = 0.2
"""Between two sessions."""
LOOK_AGAIN_S = 2.0
"""How often a standby looks who rules, whatever watches say."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a candidate is given: doors, clock, ids, chance."""

    open_store: Callable[[], Awaitable[ControllerStore]]
    gateway: CommandGateway
    clock: Clock
    new_id: Callable[[], str]
    random_index: Callable[[int], int]


class Leadership:
    """One controller process in the contest for the office.

    `active` is who rules, as far as is known; `active_controller` is set while it is this process.
    `audit_replicator` keeps the history, active or standby; without one, nobody does.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        url: str,
        means: Means,
        metrics: ControllerMetrics,
        audit_replicator: AuditReplicator | None = None,
    ) -> None:
        self.settings = settings
        self.url = url
        self.metrics = metrics
        self.active_controller: ActiveController | None = None
        self.active: ControllerRow | None = None
        self.store: ControllerStore | None = None
        self.cluster_id = ""
        self.audit_replicator = audit_replicator
        self._means = means
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Contend and rule until cancelled; then the session, and with it the office, ends."""
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
            try:
                self.store = store
                await self._contend(store)
            except (TermEnded, ZkError) as end:
                _log.warning("this session is over: %s", end)
            except Exception:
                _log.exception("this session is over by a fault")
            finally:
                self.active_controller = self.active = self.store = None
                await _close(store)
            await asyncio.sleep(PAUSE_S)

    async def _contend(self, store: ControllerStore) -> None:
        """Wait for the office to be free, take it, and rule.

        Raises:
            TermEnded: the term is over.
            ZkError: ZooKeeper was lost.

        """
        self.cluster_id = await store.prepare(self._means.new_id())
        store.on_reconnected(self._changed.set)
        async with self._history_kept(store):
            await self._contend_for(store)

    @contextlib.asynccontextmanager
    async def _history_kept(self, store: ControllerStore) -> AsyncIterator[None]:
        """Have the historian follow the outbox for as long as this session is used."""
        if self.audit_replicator is None:
            yield
            return
        follow = self.audit_replicator.follow(store.outbox, self.cluster_id, self._calm)
        following = asyncio.create_task(follow, name="historian")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _calm(self) -> None:
        """Wait until no broker has to be told of its roles."""
        if self.active_controller is not None:
            await self.active_controller.dispatcher.until(self.active_controller.dispatcher.settled)

    async def _contend_for(self, store: ControllerStore) -> None:
        while not store.lost.is_set():
            self._changed.clear()
            holder = await store.holder(self._changed.set)
            if holder is None:
                term = await self._claim(store)
            elif holder.session_id == store.session_id:  # a claim whose answer was lost (rule R7)
                term = await store.term()
            else:
                term = None
                epoch = (await store.term()).epoch
                self.active = ControllerRow(holder.registration.id, holder.registration.url, epoch)
                await self._wait(store)
            if term is not None:
                await self._rule(store, term)
        raise TermEnded("the ZooKeeper session is over")

    async def _claim(self, store: ControllerStore) -> Term | None:
        me = self._registration()
        entry = AuditEntry(
            time=me.timestamp,
            cause=new_cause(),
            actor=f"controller-{me.id}",
            kind="controller_elected",
            after=msgspec.structs.asdict(me) | {"extra": None},
        )
        return await store.claim(me, znodes.encode_audit(entry))

    def _registration(self) -> ControllerRegistration:
        return ControllerRegistration(
            self.settings.controller_id, self.url, self._means.clock.wall_ms()
        )

    async def _wait(self, store: ControllerStore) -> None:
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
            # Not suppressed: a cancellation that comes just now is this task's own.
            await asyncio.gather(*waits, return_exceptions=True)

    async def _rule(self, store: ControllerStore, term: Term) -> None:
        _log.info("active with epoch %d", term.epoch)
        self.metrics.terms.inc()
        policy = ClusterPolicy(
            self.settings.min_insync_replicas, self.settings.unclean_leader_election_enable
        )
        image = await load_image(store, policy, term)
        gc.freeze()  # full collections would walk the image again and again, and find nothing
        context = ControllerContext(
            store=store,
            registration=self._registration(),
            term=term,
            cluster_id=self.cluster_id,
            settings=self.settings,
            clock=self._means.clock,
            metrics=self.metrics,
            new_id=self._means.new_id,
            random_index=self._means.random_index,
        )
        self.active_controller = ActiveController(context, image, self._means.gateway)
        self.active = ControllerRow(self.settings.controller_id, self.url, term.epoch)
        await self.active_controller.run()


async def _close(store: ControllerStore) -> None:
    """End a session whatever happens: one that lingers would keep the office from everybody."""
    closing = asyncio.ensure_future(store.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise
