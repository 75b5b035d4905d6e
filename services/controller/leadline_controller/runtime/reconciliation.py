"""Taking over, and the level-triggered part: compare and repair, whatever watches say (R8)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from leadline_common.cause import new_cause
from leadline_common.leader_election import TermEnded
from leadline_controller.domain.failover import on_controller_failover
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import StaleView, Why
from leadline_controller.runtime.topics.brokers import BrokerManager
from leadline_controller.runtime.topics.topics import TopicManager

_log = logging.getLogger(__name__)

SHARE = 20
"""The reconciliation takes at most one part in this many of the time."""


class Reconciler(EventHandler):
    """The first and the recurring duties of a term, those of all `keepers` among them."""

    def __init__(
        self,
        desk: EventContext,
        brokers: BrokerManager,
        topics: TopicManager,
        keepers: Sequence[EventHandler],
    ) -> None:
        self._desk = desk
        self._brokers = brokers
        self._topics = topics
        self._keepers = keepers
        self._store = desk.office.store
        self._last_ms = 0

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {events.Reconcile: self.on_reconcile, events.OfficeInDoubt: self.on_doubt}

    async def begin(self) -> None:
        """Begin the term from the loaded image (seed 1: on_controller_failover).

        Decide and publish first, then grant: a broker that registered after a state
        was written must not be given the old role that the state names.
        """
        cause = f"term-{self._desk.office.term.epoch}-{new_cause()}"
        self._desk.cause = cause
        try:
            await self._repair(cause, "controller_failover")
        except StaleView as moved:
            _log.info("%s has changed meanwhile; looking again", moved)
            self._desk.hint(events.Reconcile, cause)
        self._desk.delivery.meet_brokers(self._desk.image.brokers, cause)
        for keeper in self._keepers:
            await keeper.take_over(cause)
        await self._check_office()
        # What changed between loading and watching is found by looking once more.
        self._desk.hint(events.BrokersChanged, cause)
        self._desk.hint(events.TopicsChanged, cause)

    async def on_reconcile(self, event: events.Reconcile) -> None:
        """Read everything, take in what is news, and decide wherever something is due."""
        clock = self._desk.office.clock
        begun = clock.monotonic_ms()
        await self._check_office()
        await self._brokers.on_broker_change(event)
        await self._topics.on_topic_change(event)
        names = [name for name, _ in self._desk.image.partitions()]
        known = [partition.version for _, partition in self._desk.image.partitions()]
        self._desk.adopt(await self._store.read_states(names, known))
        await self._repair(event.cause, "reconciliation")
        for keeper in self._keepers:
            await keeper.reconcile(event)
        self._last_ms = clock.monotonic_ms() - begun

    async def on_doubt(self, _event: events.OfficeInDoubt) -> None:
        """Resign if the office is somebody else's by now."""
        await self._check_office()

    async def _check_office(self) -> None:
        """Resign if `/controller` is not this session's: nobody may go on ruling beside another.

        Writes are fenced anyway (rule R11); this is for what is only served.
        """
        leader = (await self._store.read_election(self._suspect)).leader
        if leader is None or leader.session_id != self._store.session_id:
            raise TermEnded("/controller is not held by this session any more")

    def _suspect(self) -> None:
        self._desk.hint(events.Reconcile)

    async def _repair(self, cause: str, kind: str) -> None:
        decisions = on_controller_failover(self._desk.image)
        if decisions:
            _log.info("%s: %d states are due", kind, len(decisions))
        why = Why(cause, self._desk.office.actor, kind)
        await self._desk.write(decisions, why)

    async def run(self) -> None:
        """Ask for a reconciliation now and then; less often where it takes long."""
        configs = self._desk.configs
        while True:
            interval_ms = configs.current().reconcile_interval_ms
            await configs.changed(within_s=max(interval_ms, SHARE * self._last_ms) / 1000)
            self._desk.hint(events.Reconcile)
