"""Reassignment in the simulated controller: decided by the controller's own functions (R13)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from leadline_broker.domain.rules import Rules
from leadline_client.wire import TopicPartition
from leadline_common.tasks import Intent, intent_path
from leadline_common.znodes import CONTROLLER_EPOCH, topic_path
from leadline_controller.domain.cluster import Change, ClusterImage, StateSet, TopicSet
from leadline_controller.domain.failover import stale_finder
from leadline_controller.domain.reassignment.machine import ReassignmentState, Wait, next_action
from leadline_controller.domain.reassignment.publication import TopicChange, publish_actions
from leadline_controller.domain.reassignment.queue import (
    DueAction,
    QueuedReassignment,
    collect_state,
)
from tests.simulation.messages import PARTITION, TOPIC
from tests.simulation.replica_shell import STATE
from tests.simulation.zookeeper import Check, Delete, Op, Set, Znode

INTENT = intent_path(TOPIC, PARTITION)
NAME = TopicPartition(TOPIC, PARTITION)


@dataclass(frozen=True, slots=True)
class Movement:
    """One step of a reassignment: what to write, and what it means once it is written."""

    kind: str
    change: TopicChange
    topic_version: int
    intent: Znode

    @property
    def drops(self) -> tuple[int, ...]:
        """The replicas that are deleted afterwards."""
        return self.change.drops.get(PARTITION, ())

    def operations(self, epoch_version: int) -> list[Op]:
        """Return the transaction: all of it conditional, as the controller writes it."""
        ops: list[Op] = [Check(CONTROLLER_EPOCH, epoch_version)]
        if self.change.assignment is not None:
            ops.append(Set(topic_path(TOPIC), self.change.assignment, self.topic_version))
        ops += [Set(STATE, d.after, d.version) for d in self.change.decisions]
        if self.change.finished:
            ops += [Check(INTENT, self.intent.version), Delete(INTENT, self.intent.created)]
        return ops

    def changes(self, zxid: int) -> list[Change]:
        """Return what it changes in the image."""
        changes: list[Change] = []
        if self.change.assignment is not None:
            changes.append(TopicSet(TOPIC, self.change.assignment, self.topic_version + 1, zxid))
        changes += [
            StateSet(*NAME, decision.after, decision.version + 1, zxid)
            for decision in self.change.decisions
        ]
        return changes


def next_movement(image: ClusterImage, intent: Znode | None, rules: Rules) -> Movement | None:
    """Decide what to write next for the partition's reassignment, if there is one."""
    if intent is None:
        return None
    entry = QueuedReassignment(NAME, intent.value, intent.version, 0)
    state = collect_state(image, entry, image.electable, stale_finder(image), None)
    if state is None:
        return None
    action = next_action(state)
    if isinstance(action, Wait) and state.leader in state.live and not rules.r13_reassignment:
        state = _hurried(state)
        action = next_action(state)
    if isinstance(action, Wait):
        return None
    topic = image.topics[TOPIC]
    change = publish_actions(topic, [DueAction(NAME, state, action)], image.controller_epoch)
    return Movement(type(action).__name__, change, topic.version, intent)


def _hurried(state: ReassignmentState) -> ReassignmentState:
    """Take every live replica for one in sync, instead of waiting until it is."""
    return msgspec.structs.replace(state, isr=state.replicas, stale=frozenset())


def asked(known: Znode | None, target: tuple[int, ...], start: tuple[int, ...], zxid: int) -> Znode:
    """Return the intent after an operator has asked for a target, or for another one."""
    if known is None:
        return Znode(Intent(target, start), 0, zxid, zxid)
    intent = msgspec.structs.replace(known.value, target=target, cancelled=False)
    return Znode(intent, known.version + 1, known.created, zxid)


def cancelled(known: Znode, zxid: int) -> Znode:
    """Return the intent after an operator has cancelled it."""
    intent = msgspec.structs.replace(known.value, cancelled=True)
    return Znode(intent, known.version + 1, known.created, zxid)
