"""The records of idempotency keys: begun, marked by the change itself, answered, deleted.

`domain/idempotency.py` defines what the records mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from leadline_client.errors import NoController, RequestInDoubt
from leadline_common import znodes
from leadline_common.cause import current_cause
from leadline_common.clock import Clock
from leadline_common.cluster_time import ClusterTime
from leadline_common.zk.errors import ConnectionLoss, MultiFailed
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp
from leadline_controller.domain.idempotency import (
    KeyRecord,
    StoredResponse,
    decode_record,
    resolve,
)
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler
from leadline_controller.runtime.engine.events import (
    ControllerEvent,
    ControllerRequest,
    Reply,
)
from leadline_controller.runtime.engine.guard import Mark
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)

CLEANUP_INTERVAL_MS = 60_000
MAX_RECORDS = 10_000
"""The most records; the oldest are deleted first. A list of all names must fit one answer."""


@dataclass(frozen=True, slots=True)
class TakeKey(ControllerRequest[Mark | StoredResponse]):
    """A request with a key begins; answered with its mark, or with the earlier answer.

    `request` is a digest of the request, `what` its method and path.
    """

    key: str
    request: str
    what: str

    @property
    def resource(self) -> Mapping[str, Any]:
        """The method and path."""
        return {"request": self.what}


@dataclass(frozen=True, slots=True)
class KeepAnswer(ControllerRequest[None]):
    """A request with a key has succeeded; `answer` is None if it is too large to be kept."""

    key: str
    answer: StoredResponse | None


@dataclass(frozen=True, slots=True)
class DropKey(ControllerEvent):
    """A request with a key has failed; unless `marked` it has changed nothing."""

    key: str
    marked: bool


def record_path(key: str) -> str:
    """Return the znode of a key's record; ZooKeeper does not see the key itself."""
    return znodes.idempotency_path(hashlib.sha256(key.encode()).hexdigest()[:32])


@dataclass(eq=False)
class IdempotencyManager(EventHandler):
    """Handles idempotency keys; `_in_progress` are the requests that this term has begun.

    `_begun_ms` has the (monotonic) times at which the requests of records began, by the name of the
    record. The wall clock only tells how old a record of another term was when this one found it:
    a clock that is set must not make a request be done twice.
    """

    store: ControllerStore
    configs: DynamicConfigs
    writer: StateWriter
    clock: Clock
    time: ClusterTime
    epoch: int
    _in_progress: dict[str, KeyRecord] = field(default_factory=dict, init=False)
    _begun_ms: dict[str, int] = field(default_factory=dict, init=False)
    _cleaned_ms: int | None = field(default=None, init=False)

    @TakeKey.handler
    async def on_take(self, event: TakeKey, reply: Reply[Mark | StoredResponse]) -> None:
        """Begin a request, unless its key was used before.

        Raises:
            LeadlineError: as `domain.idempotency.resolve` says.
            NoController: ZooKeeper was lost before the request was begun.

        """
        path = record_path(event.key)
        try:
            (node,) = await self.store.read_nodes([path])
            kept = self._judge(event, node)
            if kept is not None:
                reply.settle(kept)
                return
            record = KeyRecord(
                state="begun",
                request=event.request,
                what=event.what,
                cause=current_cause(),
                epoch=self.epoch,
                time=self.time.latest_ms(),
            )
            data = msgspec.json.encode(record)
            op: Op = CreateOp(path, data) if node is None else SetOp(path, data, node.version)
            await self.writer.commit_all([op])
        except ConnectionLoss:
            raise NoController("ZooKeeper was lost before the request was begun") from None
        if reply.is_done:  # The caller has stopped waiting: nothing will be done.
            await self.writer.commit_all([DeleteOp(path, ANY_VERSION)])
            return
        self._in_progress[event.key] = record
        self._begun_ms[_name_of(path)] = self.clock.monotonic_ms()
        mark = msgspec.json.encode(msgspec.structs.replace(record, state="changed"))
        reply.settle(Mark(SetOp(path, mark, ANY_VERSION), self.epoch))

    def _judge(self, event: TakeKey, node: ReadNode | None) -> StoredResponse | None:
        if node is None:
            return None
        try:
            record = decode_record(node.data)
        except msgspec.MsgspecError:
            raise RequestInDoubt("the record of this Idempotency-Key cannot be read") from None
        return resolve(record, event.request, self.epoch, under_way=event.key in self._in_progress)

    @KeepAnswer.handler
    async def on_keep(self, event: KeepAnswer, reply: Reply[None]) -> None:
        """Keep an answer, to give it again."""
        record = self._in_progress.pop(event.key)
        done = msgspec.structs.replace(record, state="done", answer=event.answer)
        await self.writer.commit_all(
            [SetOp(record_path(event.key), msgspec.json.encode(done), ANY_VERSION)]
        )
        reply.settle(None)

    @DropKey.handler
    async def on_drop(self, event: DropKey) -> None:
        """Free a key whose request changed nothing; otherwise keep its record."""
        known = self._in_progress.pop(event.key, None)
        if known is not None and not event.marked:
            await self.writer.commit_all([DeleteOp(record_path(event.key), ANY_VERSION)])

    # -- cleaning up -----------------------------------------------------------

    async def reconcile(self) -> None:
        """Delete expired records, at most once in a while."""
        now_ms = self.clock.monotonic_ms()
        if self._cleaned_ms is not None and now_ms - self._cleaned_ms < CLEANUP_INTERVAL_MS:
            return
        self._cleaned_ms = now_ms
        await self._clean_up()

    async def _clean_up(self) -> None:
        (names,) = await self.store.children([znodes.IDEMPOTENCY])
        await self._read_times(names or [])
        keep_ms = self.configs.current().idempotency_retention_ms
        oldest_ms = self.clock.monotonic_ms() - keep_ms
        by_age = sorted(self._begun_ms, key=lambda name: (self._begun_ms[name], name))
        surplus = len(by_age) - MAX_RECORDS
        expired = [n for i, n in enumerate(by_age) if i < surplus or self._begun_ms[n] < oldest_ms]
        try:
            await self.writer.commit_all(
                [DeleteOp(f"{znodes.IDEMPOTENCY}/{name}", ANY_VERSION) for name in expired]
            )
        except MultiFailed as failure:  # Somebody else has deleted one.
            logger.warning("expired idempotency records not deleted", error=str(failure))

    async def _read_times(self, names: list[str]) -> None:
        """Read the begin times of new records, and forget deleted ones."""
        new = [name for name in names if name not in self._begun_ms]
        nodes = await self.store.read_nodes([f"{znodes.IDEMPOTENCY}/{name}" for name in new])
        known = {name: self._begun_ms[name] for name in names if name in self._begun_ms}
        earliest_ms, now_ms = self.time.earliest_ms(), self.clock.monotonic_ms()
        for name, node in zip(new, nodes, strict=True):
            if node is not None:
                # The clock by which it began may have been ahead.
                age_ms = max(0, earliest_ms - _begin_time(node.data))
                known[name] = now_ms - age_ms
        self._begun_ms = known


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _begin_time(data: bytes) -> int:
    """Return the time at which a request began (Unix ms); 0 for an unreadable record."""
    try:
        return decode_record(data).time
    except msgspec.MsgspecError:
        return 0
