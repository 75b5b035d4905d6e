"""Rules of the protocol that are taken out of the services, one at a time, for tests only.

A run without a rule must sooner or later violate a check: this shows that the checks, the faults
and the simulated world suffice to find what the rule prevents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest
from msgspec import structs

from leadline_broker.adapters.log import durability, segment
from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.durability import Durability, OnFlushed
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.producers import Accept, ProducerStates
from leadline_broker.domain.publishes import AppendFrom, Publishes
from leadline_broker.domain.replica import Replica
from leadline_broker.domain.rules import ALL_RULES, Rules
from leadline_broker.domain.state import Directories, ReplicaKey, ReplicaState
from leadline_broker.runtime.cluster.controller_check import ControllerCheck
from leadline_broker.runtime.cluster.directory_version import DirectoryVersion
from leadline_broker.runtime.replication import commands, replica_manager
from leadline_broker.runtime.replication.commands import ControllerCommands
from leadline_broker.runtime.replication.effect_executor import EffectExecutor
from leadline_broker.runtime.replication.fetchers import ReplicaFetcher
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.batch_header import parse_headers
from leadline_client.errors import LeadlineError
from leadline_client.membership import MembershipManager
from leadline_client.retry import Attempts
from leadline_client.wire import TopicPartition
from leadline_common.directories import FIRST_DIRECTORY_EPOCH
from leadline_common.zk.ops import ANY_VERSION, CheckOp
from leadline_common.zk.session import SessionLease
from leadline_common.znodes import CONTROLLER_EPOCH, BrokerRegistration
from leadline_controller.domain import election, failover
from leadline_controller.domain.cluster import BrokerDown, BrokerUp, ClusterImage
from leadline_controller.domain.failover import BrokerChange
from leadline_controller.domain.reassignment.machine import ReassignmentState
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.channel.pending_roles import PendingPartitions
from leadline_controller.runtime.engine import state_writer
from leadline_controller.runtime.reassignment.failure_records import FailureRecords
from leadline_controller.runtime.topics import brokers
from leadline_controller.runtime.topics.brokers import BrokerManager
from leadline_coordinator.adapters import group_nodes
from leadline_coordinator.domain import polling
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupLimits, GroupMember, PolledSession
from leadline_coordinator.runtime import offsets, polled_members
from leadline_coordinator.runtime.committer import OffsetCommitter

Replacement = tuple[Any, str, Any]


def _without(rule: str) -> list[Replacement]:
    """Return replacements that make brokers' replicas work without a rule."""
    rules: Rules = replace(ALL_RULES, **{rule: False})
    return [(replica_manager, "Replica", partial(Replica, rules=rules))]


def _each_role_once() -> list[Replacement]:
    """Send each role once, whether it arrives or not, and compare nothing later (R8)."""
    send: Callable[..., Awaitable[bool]] = BrokerRequestQueue._send_roles

    async def send_once(
        queue: BrokerRequestQueue, roles: PendingPartitions, **options: Any
    ) -> bool:
        answered = await send(queue, roles, **options)
        if options["is_grant"]:
            return answered
        for topic, numbers in roles.items():
            queue._roles.remove(topic, numbers)
        return True

    return [
        (BrokerRequestQueue, "_send_roles", send_once),
        (BrokerRequestQueue, "retry_role", lambda *_: None),
        (BrokerDispatcher, "_agrees", lambda *_: True),
    ]


def _no_new_epoch_after_a_restart() -> list[Replacement]:
    """Let a broker that returns before its session ends go on in its old roles (R9).

    When it registered is not compared with the time of a state either.
    """
    set_broker = ClusterImage._set_broker
    real: Callable[..., BrokerChange] = failover.on_broker_change

    def flawed(*arguments: Any) -> BrokerChange:
        change = real(*arguments)
        return structs.replace(change, decisions=[]) if change.bounced else change

    def read_again(manager: BrokerManager, _: object) -> None:
        manager._read_again()

    def set_long_ago(image: ClusterImage, change: BrokerUp | BrokerDown) -> bool:
        changed = set_broker(image, change)
        image.registered_at = dict.fromkeys(image.registered_at, 0)
        return changed

    return [
        (brokers, "on_broker_change", flawed),
        (BrokerManager, "_gone", read_again),
        (ClusterImage, "_set_broker", set_long_ago),
    ]


def _unsynced_ends_count() -> list[Replacement]:
    """Let leaders and followers count what is only in the page cache (R4)."""

    async def at_once(_: object) -> None:
        return

    return [
        *_without("r4_durable_ends"),
        (ReplicaFetcher, "_until_durable", at_once),
        (GroupFlusher, "settled", at_once),
    ]


def _any_directory_counts() -> list[Replacement]:
    """Let a member count that has lost its log directory (R17)."""
    return [
        *_without("r17_directories"),
        (BrokerRegistration, "epoch_of", lambda *_: FIRST_DIRECTORY_EPOCH),
        (ReplicaState, "may_lead", lambda *_: True),
    ]


def _copies_count() -> list[Replacement]:
    """Let a log directory count as itself that is an older copy (R17)."""

    async def directories(version: DirectoryVersion) -> Directories:
        return Directories(version.logs.directory_id, version.logs.own_directory_ids())

    return [(DirectoryVersion, "directories", directories)]


def _no_end_of_leases() -> list[Replacement]:
    return [(SessionLease, "valid", lambda *_: True)]


def _no_controller_epoch() -> list[Replacement]:
    """Let a former controller write, and brokers obey it (R11)."""

    def check(path: str, version: int) -> CheckOp:
        return CheckOp(path, ANY_VERSION if path == CONTROLLER_EPOCH else version)

    async def admit(*_: object) -> None:
        return

    return [
        (state_writer, "CheckOp", check),
        (ControllerCheck, "require_active", admit),
        (ControllerCommands, "_accept_epoch", lambda *_: None),
    ]


def _names_without_ids() -> list[Replacement]:
    """Let a topic take what was meant for an earlier one of its name (R1, F25)."""
    real: Callable[..., Partition] = Serving.led

    def led(
        serving: Serving,
        topic: str,
        number: int,
        leader_epoch: int | None = None,
        *,
        topic_id: str | None = None,
    ) -> Partition:
        del topic_id
        return real(serving, topic, number, leader_epoch)

    return [(Serving, "led", led)]


def _no_deletion_of_logs() -> list[Replacement]:
    """Leave the log of a deleted replica to the next topic of its name (R12)."""

    def delete(directory: LogDirectory, key: ReplicaKey) -> Callable[[], None]:
        directory._take(key).discard()
        return lambda: None

    return [(LogDirectory, "delete", delete), (LogDirectory, "_prepare_directory", lambda *_: None)]


def _no_wait_for_added_replicas() -> list[Replacement]:
    """Drop replicas while the new ones may still lack records (R13)."""
    live = property(lambda state: tuple(b for b in state.replicas if b in state.live))
    return [(ReassignmentState, "in_sync", live)]


def _any_live_replica_leads() -> list[Replacement]:
    """Elect a replica from outside the ISR when no member is live (R14)."""
    real: Callable[..., election.Election] = election._offline

    def offline(*arguments: Any, **options: Any) -> election.Election:
        return real(*arguments, **{**options, "unclean": True})

    return [(election, "_offline", offline)]


def _repeat_unknown_outcomes() -> list[Replacement]:
    """Let the client library repeat whatever may have taken effect (R15)."""
    real: Callable[..., float] = Attempts.pause_after

    def pause_after(
        attempts: Attempts, error: LeadlineError, *, repeatable: bool, **others: Any
    ) -> float:
        del repeatable
        return real(attempts, error, repeatable=True, **others)

    return [(Attempts, "pause_after", pause_after)]


def _no_end_of_members_leases() -> list[Replacement]:
    """Let a member consume for as long as nobody has told it to stop (R16)."""

    def may_consume(membership: MembershipManager, _: float) -> bool:
        return bool(membership.owned)

    return [
        (MembershipManager, "may_consume", may_consume),
        (MembershipManager, "deadline_s", lambda _: None),
    ]


def _no_coordinator_epoch() -> list[Replacement]:
    """Let a former coordinator write (R16)."""

    def check(path: str, _: int) -> CheckOp:
        return CheckOp(path, ANY_VERSION)

    return [(group_nodes, "CheckOp", check)]


def _commits_of_anybody() -> list[Replacement]:
    """Let anybody commit, member or not, of any generation, and whatever it owns (R16)."""

    def committing(group: Group, member_id: str | None, *_: object) -> GroupMember | None:
        return None if member_id is None else group.members.get(member_id)

    return [
        (offsets, "committing_member", committing),
        (offsets, "check_owned", lambda *_: None),
        (offsets, "check_without_members", lambda *_: None),
    ]


def _sent_answers_count() -> list[Replacement]:
    """Take it that a member that polls has received each answer that was sent to it (R16)."""
    real: Callable[..., None] = polling.acknowledge

    def acknowledge(
        group: Group, member: GroupMember, session: PolledSession, *others: Any
    ) -> None:
        told, now_ms = session.told, others[-1]
        real(group, member, session, *others)
        for frame_id in sorted(session.stops):
            if frame_id <= told:
                group.release(member, session.on_stopped(frame_id, now_ms))

    return [(polled_members, "acknowledge", acknowledge)]


def _leases_of_channels_only() -> list[Replacement]:
    """Evict a member that polls when one with a channel would be, whatever its lease (R16)."""

    def evict_limit_ms(_: GroupMember, limits: GroupLimits) -> int:
        return limits.evict_limit_ms

    return [(GroupMember, "evict_limit_ms", evict_limit_ms)]


def _retention_of_uncommitted_records() -> list[Replacement]:
    """Let retention remove what is not committed yet."""
    real = PartitionLog.apply_retention

    def apply(log: PartitionLog, now_ms: int, age_ms: int, size: int, limit: int) -> int:
        del limit
        return real(log, now_ms, age_ms, size, log.log_end_offset)

    return [(PartitionLog, "apply_retention", apply)]


def _no_way_to_the_log_start() -> list[Replacement]:
    """Let a follower stay where it is when its leader begins later."""
    return [(EffectExecutor, "_reset", lambda *_: None)]


def _removed_replicas_go_on() -> list[Replacement]:
    """Leave a removed replica that a broker finds to the next partition of its number (R12)."""
    return [(commands, "is_of_removed_partition", lambda *_: False)]


def _failures_forgotten() -> list[Replacement]:
    """Let a controller know of no failure that an earlier one has recorded."""

    async def read(_: FailureRecords) -> None:
        return

    return [(FailureRecords, "read", read)]


def _offsets_without_topic_ids() -> list[Replacement]:
    """Keep a group's offsets when its topic is deleted, and begin the next one there (R1)."""

    def start_offset(group: Group, one: TopicPartition) -> tuple[Any, ...]:
        known = group.offsets.get(one)
        return (*one, None, None) if known is None else (*one, known.offset, None)

    return [
        (OffsetCommitter, "drop", lambda *_: None),
        (Group, "start_offset", start_offset),
    ]


def _repeated_batches_unknown() -> list[Replacement]:
    """Append whatever an idempotent producer sends, also what it sends again."""
    return [(ProducerStates, "check", lambda *_, **__: Accept())]


def _begun_batches_unknown() -> list[Replacement]:
    """Publish a batch from its first piece on, also if a former leader has left it incomplete."""
    return [(Publishes, "check", lambda *_: AppendFrom(0))]


def _stored_batches_unchecked() -> list[Replacement]:
    """Serve what is on the disk, whatever that is."""

    def check(data: bytes, expected_offset: int, _: object) -> int:
        ends = [header.next_offset for header in parse_headers(data)]
        return ends[-1] if ends else expected_offset

    return [(segment, "check_stored", check)]


def _no_fsync() -> list[Replacement]:
    """Take what is in the page cache for durable."""

    def begin_flush(log: Durability, on_flushed: OnFlushed) -> bool:
        del log, on_flushed
        return False

    return [(durability, "_sync", lambda *_: None), (Durability, "begin_flush", begin_flush)]


FLAWS: Final[Mapping[str, Callable[[], list[Replacement]]]] = {
    "R1": partial(_without, "r1_identity"),
    "R2": partial(_without, "r2_reconcile"),
    "R3": partial(_without, "r3_correlated"),
    "R4": _unsynced_ends_count,
    "R5": partial(_without, "r5_proposed_isr"),
    "R6": partial(_without, "r6_joiner"),
    "R7": partial(_without, "r7_ambiguous"),
    "R8": _each_role_once,
    "R9": _no_new_epoch_after_a_restart,
    "R10": _no_end_of_leases,
    "R11": _no_controller_epoch,
    "R12": _no_deletion_of_logs,
    "R12 partitions": _removed_replicas_go_on,
    "R13": _no_wait_for_added_replicas,
    "R14": _any_live_replica_leads,
    "R15": _repeat_unknown_outcomes,
    "R16 lease": _no_end_of_members_leases,
    "R16 epoch": _no_coordinator_epoch,
    "R16 commits": _commits_of_anybody,
    "R16 order": lambda: [(offsets, "is_superseded", lambda *_: False)],
    "R16 polls": _sent_answers_count,
    "R16 polled lease": _leases_of_channels_only,
    "R17": _any_directory_counts,
    "R17 copies": _copies_count,
    "topic id": _names_without_ids,
    "retention": _retention_of_uncommitted_records,
    "log start": _no_way_to_the_log_start,
    "healing": _failures_forgotten,
    "group's topic id": _offsets_without_topic_ids,
    "sequences": _repeated_batches_unknown,
    "pieces": _begun_batches_unknown,
    "CRC": _stored_batches_unchecked,
    "fsync": _no_fsync,
}
"""By the name of the rule, what to replace where."""


@contextmanager
def in_force(name: str) -> Iterator[None]:
    """Run the block with a flaw; the empty name is none."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, attribute, value in FLAWS[name]() if name else ():
            patch.setattr(owner, attribute, value)
        yield
