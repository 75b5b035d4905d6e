"""Elections by order, by an order that stands in ZooKeeper, and for the balance of leaders."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from leadline_client.errors import UnknownPartition
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.partition_intents import PreferredElection, decode_preferred
from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import DeleteOp
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.failover import (
    StateDecision,
    elect_preferred,
    elect_unclean,
    non_preferred_leaders,
    possible_loss,
)
from leadline_controller.domain.state import ReadNode
from leadline_controller.domain.topics import find_topic
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import Why

_log = logging.getLogger(__name__)

TICK_MS = 1_000
"""How soon a changed interval of the balance takes effect."""


@dataclass(frozen=True, slots=True)
class PreferredElectionOrdered(events.Hint):
    """The watch on the order for a preferred election fired."""


@dataclass(frozen=True, slots=True)
class LeadersToBalance(events.Hint):
    """It is time to see whether leaders are out of place."""


class ElectionManager(EventHandler):
    """The handlers of elections that no failure brings about."""

    def __init__(self, desk: EventContext) -> None:
        self._desk = desk
        self._store = desk.office.store
        self._timer: asyncio.Task[None] | None = None

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {
            events.ElectLeaders: self.on_elect,
            PreferredElectionOrdered: self.on_order,
            LeadersToBalance: self.on_balance,
        }

    async def take_over(self, cause: str) -> None:
        """Carry out the order that stands, and begin to watch the balance."""
        await self._heed_order(cause)
        self._timer = asyncio.create_task(self._tick(), name="leader-balance")

    async def reconcile(self, event: events.Reconcile) -> None:
        """Look for an order whose watch was missed."""
        await self._heed_order(event.cause)

    async def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._timer

    @property
    def _image(self) -> ClusterImage:
        return self._desk.image

    # -- by request ------------------------------------------------------------

    async def on_elect(self, event: events.ElectLeaders) -> None:
        """Elect by an operator's order, and answer with what was (or would be) written."""
        names = self._named(event)
        decide = partial(elect_unclean if event.unclean else elect_preferred, self._image)
        decisions = decide(names)
        if event.dry_run:
            event.settle(decisions)
            return
        reason = _what_may_be_lost(decisions) if event.unclean else "preferred election"
        why = Why(event.cause, "operator", "election", reason)
        event.settle(await self._desk.write(decisions, why, decide))

    def _named(self, event: events.ElectLeaders) -> list[TopicPartition]:
        """Return the partitions that an order means, each once."""
        if event.names is None:
            return [name for name, _ in self._image.partitions()]
        for name in event.names:
            if name.partition not in find_topic(self._image, name.topic).active_partitions:
                raise UnknownPartition(f"topic {name.topic!r} has no partition {name.partition}")
        return list(dict.fromkeys(event.names))

    # -- by an order in ZooKeeper ----------------------------------------------

    async def on_order(self, event: PreferredElectionOrdered) -> None:
        """Carry out the order, as Kafka's tools write it."""
        await self._heed_order(event.cause)

    async def _heed_order(self, cause: str) -> None:
        """Elect, then take the order away; a later controller may do all of it again."""
        path = znodes.PREFERRED_ELECTION
        order = await self._store.watched_node(path, self._look_again)
        if order is None:
            return
        refusal = ""
        try:
            names = self._ordered(decode_preferred(order.data))
        except msgspec.MsgspecError as problem:
            refusal = f"it cannot be read: {problem}"
        else:
            await self._prefer(names, cause, f"ordered in {path}")
        await self._take_away(order, refusal)

    def _ordered(self, order: PreferredElection) -> list[TopicPartition]:
        """Return the partitions that an order means and that exist, each once."""
        if order.partitions is None:
            return [name for name, _ in self._image.partitions()]
        names = dict.fromkeys(TopicPartition(one.topic, one.partition) for one in order.partitions)
        unknown = [name for name in names if self._image.partition(name) is None]
        if unknown:
            _log.warning("a preferred election names %d unknown partitions", len(unknown))
        return [name for name in names if self._image.partition(name) is not None]

    async def _take_away(self, order: ReadNode, refusal: str) -> None:
        """Delete the order that was read; another one that was written since stands."""
        path = znodes.PREFERRED_ELECTION
        kind = "preferred_election_refused" if refusal else "preferred_election_done"
        entry = self._desk.entry(kind, {"path": path}, reason=refusal)
        if refusal:
            _log.error("%s is refused: %s", path, refusal)
            entry = msgspec.structs.replace(entry, outcome="refused")
        try:
            await self._desk.writer.commit([DeleteOp(path, order.version)], entry)
        except MultiFailed as failure:
            _log.info("%s has changed meanwhile: %s", path, failure)
            self._look_again()

    def _look_again(self) -> None:
        self._desk.hint(PreferredElectionOrdered)

    async def _prefer(self, names: Sequence[TopicPartition], cause: str, reason: str) -> None:
        decide = partial(elect_preferred, self._image)
        why = Why(cause, self._desk.office.actor, "election", f"preferred election {reason}")
        await self._desk.write(decide(names), why, decide)

    # -- for the balance -------------------------------------------------------

    async def on_balance(self, event: LeadersToBalance) -> None:
        """Put leaders back where a broker leads too few of those that prefer it."""
        settings = self._desk.configs.current()
        if not settings.auto_leader_rebalance_enable:
            return
        names = non_preferred_leaders(self._image, settings.leader_imbalance_per_broker_percentage)
        if names:
            _log.info("%d leaders are out of place", len(names))
            await self._prefer(names, event.cause, "to balance leaders")

    async def _tick(self) -> None:
        """Ask for a look at the balance now and then, as often as the setting says by then."""
        clock = self._desk.office.clock
        last_ms = clock.monotonic_ms()
        while True:
            interval_ms = self._desk.configs.current().leader_imbalance_check_interval_ms
            left_ms = last_ms + interval_ms - clock.monotonic_ms()
            if left_ms > 0:
                await asyncio.sleep(min(left_ms, TICK_MS) / 1000)
                continue
            last_ms = clock.monotonic_ms()
            self._desk.hint(LeadersToBalance)


def _what_may_be_lost(decisions: Sequence[StateDecision]) -> str:
    """Say whose records are given up by unclean elections."""
    holders = sorted({broker for decision in decisions for broker in possible_loss(decision)})
    if not holders:
        return "unclean election: nothing that was committed is lost"
    return f"unclean election: committed records that only brokers {holders} hold may be lost"
