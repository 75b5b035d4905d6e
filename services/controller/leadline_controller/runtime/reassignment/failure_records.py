"""The records of failed and dead brokers: reads, and writes with their audit entries.

`/admin/failed_brokers` is KIP-46's, and empties itself. `/admin/dead_brokers` keeps what was done
about a broker until it returns, so that every controller shows the brokers that are down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import structlog

from leadline_common.access.caller import current_actor
from leadline_common.clock import Clock
from leadline_common.cluster_time import ClusterTime
from leadline_common.failed_brokers import (
    DeadBroker,
    FailedBroker,
    dead_broker_path,
    decode_dead_broker,
    decode_failed_broker,
    failed_broker_path,
)
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp
from leadline_common.znode_json import node_number
from leadline_common.znodes import BROKER_IDS, DEAD_BROKERS, FAILED_BROKERS, encode_value
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.healing import replicas_on, time_left
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)

FAILED_AT = "failure_timestamp"
"""Identifies one failure of a broker, in the details of chunks and in audit entries."""

_Record = TypeVar("_Record", FailedBroker, DeadBroker)


@dataclass(eq=False)
class FailureRecords:
    """The recorded failures by broker.

    `failed` brokers are not queued for healing yet, `dead` ones are. `unrecorded` are brokers
    that registered once, were not live at the last `read`, and have no record.
    """

    store: ControllerStore
    image: ClusterImage
    writer: StateWriter
    audit: AuditLog
    clock: Clock
    time: ClusterTime
    failed: dict[int, FailedBroker] = field(default_factory=dict, init=False)
    dead: dict[int, DeadBroker] = field(default_factory=dict, init=False)
    unrecorded: frozenset[int] = field(default=frozenset(), init=False)
    _invalid: set[str] = field(default_factory=set, init=False)
    _since: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)
    """Failure timestamp of a broker, and the monotonic time of this process for it."""

    @property
    def forgotten(self) -> set[int]:
        """The brokers that are not expected back, and have not failed again."""
        return {b for b, dead in self.dead.items() if dead.forgotten and b not in self.failed}

    def down_ms(self, broker: int) -> int:
        """Return how long ago a failed broker's failure was detected.

        Wall clocks only tell how old a record was when this controller saw it first. From then on
        monotonic time counts: a clock that is set forward must not move what has just failed.
        """
        failed_at, now_ms = self.failed[broker].failure_timestamp, self.clock.monotonic_ms()
        if self._since.get(broker, (None,))[0] != failed_at:
            age_ms = max(0, self.time.earliest_ms() - failed_at)  # The other's clock may be ahead.
            self._since[broker] = failed_at, now_ms - age_ms
        return now_ms - self._since[broker][1]

    def left_ms(self, broker: int, interval_ms: int) -> int | None:
        """Return in how many ms a failed broker counts as dead; see `time_left`."""
        return time_left(self.down_ms(broker), interval_ms)

    async def read(self) -> None:
        """Read the records that any controller has written."""
        ever = await self.store.brokers_ever()  # Before the live ones: who is in both is live.
        live, failed, dead = await self.store.children([BROKER_IDS, FAILED_BROKERS, DEAD_BROKERS])
        self._invalid.clear()
        self.failed = await self._decode(failed or (), failed_broker_path, decode_failed_broker)
        self.dead = await self._decode(dead or (), dead_broker_path, decode_dead_broker)
        recorded = self.failed.keys() | self.dead.keys()
        self.unrecorded = ever - {node_number(name) for name in live or ()} - recorded

    async def _decode(
        self,
        names: Sequence[str],
        path_of: Callable[[int], str],
        decode: Callable[[bytes], _Record],
    ) -> dict[int, _Record]:
        """Read records that an operator may have written; log and leave out invalid ones."""
        numbers = map(node_number, names)
        ids = [number for number in numbers if number is not None]
        found = {}
        nodes = await self.store.read_nodes([path_of(broker) for broker in ids])
        for broker, node in zip(ids, nodes, strict=True):
            try:
                if node is not None:
                    found[broker] = decode(node.data)
            except msgspec.MsgspecError as problem:
                self._invalid.add(path_of(broker))
                logger.error("invalid record of a broker", broker=broker, error=str(problem))
        return found

    async def on_broker_failure(self, broker: int, incarnation: int) -> None:
        """Record the time at which a broker's failure was detected (KIP-46, onBrokerFailure)."""
        failed = FailedBroker(
            failure_timestamp=self.time.latest_ms(),
            incarnation=incarnation,
            controller_epoch=self.image.controller_epoch,
            partitions=len(replicas_on(self.image, broker)),
        )
        await self._replace("broker_failed", broker, failed, failed, self.dead.get(broker))

    async def record_return(self, broker: int) -> None:
        """Delete the records of a broker that is live again."""
        about = self.failed.get(broker) or self.dead[broker]
        await self._replace("broker_returned", broker, about, None, None)

    async def record_queued(self, broker: int, chunks: int, partitions: int) -> None:
        """Record that all partitions of a failed broker are queued, and so it is dead."""
        failed, now_ms = self.failed[broker], self.clock.wall_ms()
        dead = _dead(failed, queued_at=now_ms, chunks=chunks, healed_at=None if chunks else now_ms)
        counts = {"chunks": chunks, "partitions": partitions}
        await self._replace("healing_queued", broker, failed, None, dead, counts=counts)

    async def record_healed(self, broker: int) -> None:
        """Record that no replica is left on a dead broker."""
        dead = msgspec.structs.replace(self.dead[broker], healed_at=self.clock.wall_ms())
        await self._replace("broker_healed", broker, dead, None, dead)

    async def forget(self, broker: int) -> None:
        """Record that a broker is not expected back, as the sender of the request says."""
        about = self.failed.get(broker) or self.dead[broker]
        dead = msgspec.structs.replace(self.dead.get(broker) or _dead(about), forgotten=True)
        await self._replace("broker_forgotten", broker, about, None, dead, actor=current_actor())

    async def _replace(
        self,
        kind: str,
        broker: int,
        about: FailedBroker | DeadBroker,
        failed: FailedBroker | None,
        dead: DeadBroker | None,
        *,
        counts: Mapping[str, int] | None = None,
        actor: str = "",
    ) -> None:
        """Write both records of a broker, None deletes one, with the audit entry of the change."""
        after = {
            FAILED_AT: about.failure_timestamp,
            "incarnation": about.incarnation,
            "controller_epoch": about.controller_epoch,
            **(counts or {}),
        }
        logger.info(kind.replace("_", " "), broker=broker, **after)
        ops = self._ops(failed_broker_path(broker), failed, self.failed.get(broker))
        ops += self._ops(dead_broker_path(broker), dead, self.dead.get(broker))
        entry = self.audit.entry(kind, {"broker": broker}, actor=actor, after=after)
        await self.writer.commit(ops, entry)
        _set(self.failed, broker, failed)
        _set(self.dead, broker, dead)

    def _ops(self, path: str, record: FailedBroker | DeadBroker | None, known: object) -> list[Op]:
        """Return the operation that replaces a record, if it differs; note which nodes exist."""
        exists = known is not None or path in self._invalid
        if record == known and path not in self._invalid:
            return []
        self._invalid.discard(path)
        if record is None:
            return [DeleteOp(path, ANY_VERSION)] if exists else []
        data = encode_value(record)
        return [SetOp(path, data, ANY_VERSION) if exists else CreateOp(path, data)]


def _dead(about: FailedBroker | DeadBroker, **members: Any) -> DeadBroker:
    return DeadBroker(
        about.failure_timestamp,
        about.incarnation,
        about.controller_epoch,
        about.partitions,
        **members,
    )


def _set(records: dict[int, _Record], broker: int, record: _Record | None) -> None:
    if record is None:
        records.pop(broker, None)
    else:
        records[broker] = record
