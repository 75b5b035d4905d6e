"""Writing ISR changes to ZooKeeper: one writer for all partitions (rules R6, R7).

Concurrent changes are written together, each in a separate transaction. A write of unknown
outcome is resolved by reading the state node, and the read is retried as long as this broker
regards itself as the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrOutcome, IsrWriteResult
from leadline_broker.domain.replica import Replica
from leadline_broker.domain.state import PublishedState
from leadline_broker.runtime.ports import ClusterStore
from leadline_broker.runtime.replication.partition import Execute, Partition
from leadline_client.backoff import Backoff
from leadline_common.slices import slices
from leadline_common.zk.errors import ZkError

logger = structlog.get_logger(__name__)

_FIRST_PAUSE_MS: Final = 50
_LONGEST_PAUSE_MS: Final = 1_000
_NO_JITTER: Final = 1.0
_APPLIED_AT_ONCE: Final = 200
"""Each takes up to 50 µs, as it may answer producers."""
_Write: TypeAlias = tuple[Replica, IsrProposal]


@dataclass(eq=False)
class IsrWriter:
    """Writes ISR proposals and reports the results to the replicas. Owned by the event loop.

    `on_committed(partition, proposal, members_before)` is called after each change that is known to
    be committed, by its answer or by a read; `on_applied(partition)` after each result, which may
    have changed its ISR or its role.
    """

    store: ClusterStore
    execute: Execute
    on_committed: Callable[[Partition, IsrProposal, int], None]
    on_applied: Callable[[Partition], None]
    at_once: int = 1_000
    """How many changes are written together. Neither preparing nor applying them holds the loop."""
    _writes: dict[Partition, _Write] = field(default_factory=dict, init=False)
    _reads: dict[Partition, Replica] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def write(self, partition: Partition, proposal: IsrProposal) -> None:
        """Write the proposal, then report with `Replica.on_isr_written`."""
        self._writes[partition] = (partition.replica, proposal)
        self._wake.set()

    def read(self, partition: Partition) -> None:
        """Read the state node, then report with `Replica.on_state_read`."""
        self._reads[partition] = partition.replica
        self._wake.set()

    async def run(self) -> None:
        """Write and read as requested; never returns."""
        backoff = Backoff(
            lambda: _NO_JITTER, first_ms=_FIRST_PAUSE_MS, longest_ms=_LONGEST_PAUSE_MS
        )
        while True:
            await self._wake.wait()
            self._wake.clear()
            refused = await self._write_all()
            # Without a pause, a write that conflicts persistently would be retried in a busy loop.
            if await self._read_all() and not any(p in self._writes for p in refused):
                backoff.reset()
                continue
            await asyncio.sleep(backoff.next_ms() / 1000)
            self._wake.set()

    async def _write_all(self) -> list[Partition]:
        """Write all proposals; return the partitions whose write conflicted."""
        waiting, self._writes = list(self._writes.items()), {}
        refused = []
        for start in range(0, len(waiting), self.at_once):
            # This incarnation must not write the proposals of an earlier one (rule R9).
            writes = {
                partition: write
                for partition, write in waiting[start : start + self.at_once]
                if partition.replica is write[0] and partition not in self._writes
            }
            if writes:
                refused += await self._write(writes)
        return refused

    async def _write(self, writes: Mapping[Partition, _Write]) -> list[Partition]:
        changes = [
            ((partition.topic, partition.topic_id, partition.partition), proposal)
            for partition, (_, proposal) in writes.items()
        ]
        outcomes = await self.store.write_isrs(changes)
        refused = []
        results = zip(writes.items(), outcomes, strict=True)
        async for some in slices(results, _APPLIED_AT_ONCE):
            for (partition, (replica, proposal)), outcome in some:
                if partition.replica is replica:
                    self._apply(partition, proposal, outcome)
                if outcome[0] is IsrWriteResult.CONFLICT:
                    refused.append(partition)
        return refused

    def _apply(self, partition: Partition, proposal: IsrProposal, outcome: IsrOutcome) -> None:
        before = len(partition.replica.state.isr)
        result, state_version = outcome
        effects = partition.replica.on_isr_written(proposal.number, result, state_version)
        if result is IsrWriteResult.COMMITTED:
            self.on_committed(partition, proposal, before)
        else:
            logger.info(
                "ISR not written",
                topic=partition.topic,
                partition=partition.partition,
                isr=proposal.isr,
                result=result.value,
            )
        self.execute(partition, effects)
        self.on_applied(partition)
        if result is IsrWriteResult.JOINER_REFUSED:
            for broker, _ in proposal.joiners:
                partition.reset_follower(broker)

    async def _read_all(self) -> bool:
        """Read all requested states; return whether all could be read."""
        reads = {p: replica for p, replica in self._reads.items() if p.replica is replica}
        self._reads = {}
        if not reads:
            return True
        keys = {p: (p.topic, p.topic_id, p.partition) for p in reads}
        try:
            states = await self.store.read_states(list(keys.values()))
        except ZkError as error:
            logger.warning("state not read", partitions=len(reads), error=str(error))
            self._reads = reads | self._reads
            return False
        unreadable = {}
        for partition, replica in reads.items():
            if keys[partition] not in states:
                if replica.leadership is not None:
                    unreadable[partition] = replica
            elif partition.replica is replica:
                self._apply_read(partition, states[keys[partition]])
        self._reads = unreadable | self._reads
        return not unreadable

    def _apply_read(self, partition: Partition, state: PublishedState | None) -> None:
        """Apply a state that was read: perhaps an own write, whose answer was lost (rule R7)."""
        leadership, before = partition.replica.leadership, len(partition.replica.state.isr)
        proposal = None if leadership is None else leadership.pending
        effects = partition.replica.on_state_read(state)
        is_written = (
            state is not None
            and proposal is not None
            and leadership is partition.replica.leadership
            and (state.isr, state.eligible) == (proposal.isr, proposal.eligible)
            and state.state_version > proposal.state_version
        )
        if proposal is not None and is_written:
            self.on_committed(partition, proposal, before)
        self.execute(partition, effects)
        self.on_applied(partition)
