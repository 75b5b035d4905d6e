"""Elections that no failure causes: requested, by an intent in ZooKeeper, or for leader balance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from leadline_client.errors import UnknownPartition
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.access.caller import current_actor
from leadline_common.clock import Clock
from leadline_common.partition_intents import PreferredElection, decode_preferred
from leadline_common.slices import in_turns, slices
from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import DeleteOp
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.failover import (
    StateDecision,
    elect_preferred,
    elect_unclean,
    possible_loss,
)
from leadline_controller.domain.leader_imbalance import LeaderImbalance
from leadline_controller.domain.state import ReadNode
from leadline_controller.domain.topics import find_topic
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    DryRunRequest,
    Reply,
    Trigger,
    partitions_resource,
)
from leadline_controller.runtime.engine.publishing import AuditLog, StatePublisher
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)

MAX_NAMED = 20
"""The most unknown partitions that the audit entry of an intent names."""
POLL_MS = 1_000
"""How soon a changed leader.imbalance.check.interval takes effect."""


@dataclass(frozen=True, slots=True)
class ElectLeaders(DryRunRequest[list[StateDecision]]):
    """Elect leaders; None means every partition. The answer is what was (or would be) written."""

    unclean: bool
    topic_partitions: tuple[TopicPartition, ...] | None

    @property
    def resource(self) -> Mapping[str, Any]:
        """The partitions, if they are named."""
        return partitions_resource(self.topic_partitions or ())


class PreferredElectionChanged(Trigger):
    """The watch on the intent for a preferred election fired."""


class LeaderBalanceDue(Trigger):
    """It is time to check whether leaders are balanced."""


@dataclass(eq=False)
class ElectionManager(EventHandler):
    """Handles elections that no failure causes."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    configs: DynamicConfigs
    writer: StateWriter
    publisher: StatePublisher
    audit: AuditLog
    clock: Clock

    async def on_elected(self) -> None:
        """Execute a pending intent, and begin to check the balance of leaders."""
        await self.reconcile()
        self.run_in_background(self._check_balance(), "leader-balance")

    # -- requests --------------------------------------------------------------

    @ElectLeaders.handler
    async def on_elect(self, event: ElectLeaders, reply: Reply[list[StateDecision]]) -> None:
        """Elect leaders, and answer with what was (or would be) written."""
        topic_partitions = await self._requested(event.topic_partitions)
        decide = partial(elect_unclean if event.unclean else elect_preferred, self.image)
        decisions = await _in_slices(decide, topic_partitions)
        if event.dry_run:
            reply.settle(decisions)
            return
        reason = _possible_loss(decisions) if event.unclean else "preferred election"
        written = await self.publisher.write(
            decisions, "election", reason, actor=current_actor(), decide=decide
        )
        reply.settle(written)

    async def _requested(
        self, topic_partitions: tuple[TopicPartition, ...] | None
    ) -> list[TopicPartition]:
        """Return the partitions of a request, each once."""
        if topic_partitions is None:
            return await self._all_partitions()
        for topic, number in topic_partitions:
            if number not in find_topic(self.image, topic).active_partitions:
                raise UnknownPartition(f"topic {topic!r} has no partition {number}")
        return list(dict.fromkeys(topic_partitions))

    async def _all_partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        async for names in in_turns(self.image.topic_parts()):
            found += [topic_partition for topic_partition, _ in self.image.partitions(names)]
        return found

    # -- the intent in ZooKeeper -----------------------------------------------

    @PreferredElectionChanged.handler
    async def reconcile(self) -> None:
        """Execute the intent that Kafka's tools write: elect, then delete the intent.

        A later controller may repeat both.
        """
        path = znodes.PREFERRED_ELECTION
        intent = await self.store.watched_node(path, self._read_again)
        if intent is None:
            return
        try:
            known, unknown = await self._intended(decode_preferred(intent.data))
        except msgspec.MsgspecError as problem:
            await self._delete_intent(intent, f"it cannot be read: {problem}", is_refused=True)
            return
        reason = f"there are no partitions {unknown[:MAX_NAMED]}" if unknown else ""
        if known or not unknown:
            await self._elect_preferred(known, f"ordered in {path}")
        await self._delete_intent(intent, reason, is_refused=bool(unknown) and not known)

    async def _intended(self, intent: PreferredElection) -> tuple[list[TopicPartition], list[str]]:
        """Return the partitions of an intent that exist, each once, and the names of others."""
        if intent.partitions is None:
            return await self._all_partitions(), []
        named = dict.fromkeys(TopicPartition(row.topic, row.partition) for row in intent.partitions)
        known = {one: None for one in named if self.image.partition(one) is not None}
        unknown = [f"{one.topic}-{one.partition}" for one in named if one not in known]
        return list(known), unknown

    async def _delete_intent(self, intent: ReadNode, reason: str, *, is_refused: bool) -> None:
        """Delete the intent that was read, unless it was replaced since."""
        path = znodes.PREFERRED_ELECTION
        kind = "preferred_election_refused" if is_refused else "preferred_election_done"
        outcome = "refused" if is_refused else "done"
        entry = self.audit.entry(kind, {"path": path}, outcome=outcome, reason=reason)
        if reason:
            logger.error("intent refused", path=path, reason=reason)
        try:
            await self.writer.commit([DeleteOp(path, intent.version)], entry)
        except MultiFailed as failure:
            logger.info("intent has changed meanwhile", path=path, error=str(failure))
            self._read_again()

    def _read_again(self) -> None:
        self.queue.trigger(PreferredElectionChanged)

    async def _elect_preferred(
        self, topic_partitions: Sequence[TopicPartition], reason: str
    ) -> None:
        decide = partial(elect_preferred, self.image)
        decisions = await _in_slices(decide, topic_partitions)
        reason = f"preferred election {reason}"
        await self.publisher.write(decisions, "election", reason, decide=decide)

    # -- leader balance --------------------------------------------------------

    @LeaderBalanceDue.handler
    async def on_balance(self) -> None:
        """Elect preferred leaders of brokers with too many non-preferred ones."""
        settings = self.configs.current()
        if not settings.auto_leader_rebalance_enable:
            return
        imbalance = LeaderImbalance(self.image)
        async for names in in_turns(self.image.topic_parts()):
            imbalance.add(names)
        non_preferred = imbalance.to_move(settings.leader_imbalance_per_broker_percentage)
        if non_preferred:
            logger.info("leaders out of balance", partitions=len(non_preferred))
            await self._elect_preferred(non_preferred, "to balance leaders")

    async def _check_balance(self) -> None:
        """Trigger the check at the interval that is set at the time."""
        last_ms = self.clock.monotonic_ms()
        while True:
            interval_ms = self.configs.current().leader_imbalance_check_interval_ms
            left_ms = last_ms + interval_ms - self.clock.monotonic_ms()
            if left_ms > 0:
                await asyncio.sleep(min(left_ms, POLL_MS) / 1000)
                continue
            last_ms = self.clock.monotonic_ms()
            self.queue.trigger(LeaderBalanceDue)


async def _in_slices(
    decide: Callable[[Sequence[TopicPartition]], list[StateDecision]],
    topic_partitions: Sequence[TopicPartition],
) -> list[StateDecision]:
    """Decide for some partitions in each turn of the loop: 100,000 at once take 0.6 s.

    Each partition is decided by itself. A state that changes meanwhile has another version, so that
    the write is refused, and decided again.
    """
    decisions: list[StateDecision] = []
    async for some in slices(topic_partitions):
        decisions += decide(some)
    return decisions


def _possible_loss(decisions: Sequence[StateDecision]) -> str:
    """Say which brokers hold records that unclean elections may lose."""
    holders = sorted({broker for decision in decisions for broker in possible_loss(decision)})
    if not holders:
        return "unclean election: nothing that was committed is lost"
    return f"unclean election: committed records that only brokers {holders} hold may be lost"
