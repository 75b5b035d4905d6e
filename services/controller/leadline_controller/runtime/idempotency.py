"""Keeping the records of idempotency keys: begun, marked in the change itself, answered, forgotten.

`domain/idempotency.py` says what the records mean.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from leadline_client.errors import NoController, RequestInDoubt
from leadline_common import znodes
from leadline_common.zk.errors import ConnectionLoss, MultiFailed
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp
from leadline_controller.domain.idempotency import (
    KeyRecord,
    StoredResponse,
    decode_record,
    encode_record,
    resolve,
)
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.guard import Mark
from leadline_controller.runtime.engine.handler import EventHandler, Handlers

_log = logging.getLogger(__name__)

TIDY_EVERY_MS = 60_000
MAX_RECORDS = 10_000
"""Records kept at most; the oldest go first. The list of their names must fit one answer."""


@dataclass(frozen=True, slots=True, eq=False)
class TakeKey(events.Request[Mark | StoredResponse]):
    """A request with a key begins; answered with its mark, or with the answer given before.

    `request` is a digest of the request, `what` its method and path.
    """

    key: str
    request: str
    what: str

    @property
    def about(self) -> Mapping[str, Any]:
        """What the request is about."""
        return {"request": self.what}


@dataclass(frozen=True, slots=True, eq=False)
class KeepAnswer(events.Request[None]):
    """A request with a key has succeeded; no answer where that is too large to be kept."""

    key: str
    answer: StoredResponse | None


@dataclass(frozen=True, slots=True)
class DropKey(events.Event):
    """A request with a key has not succeeded, and sent no change if it is not `marked`."""

    key: str
    marked: bool


def record_path(key: str) -> str:
    """Return the node of a key's record; the key itself stays with the caller."""
    return znodes.idempotency_path(hashlib.sha256(key.encode()).hexdigest()[:32])


class IdempotencyManager(EventHandler):
    """The handlers of keys. `_under_way` are the requests that are being handled, by key."""

    def __init__(self, desk: EventContext) -> None:
        self._desk = desk
        self._store = desk.office.store
        self._under_way: dict[str, KeyRecord] = {}
        self._times: dict[str, int] = {}
        self._tidied_ms: int | None = None

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {TakeKey: self.on_take, KeepAnswer: self.on_keep, DropKey: self.on_drop}

    async def on_take(self, event: TakeKey) -> None:
        """Begin a request, unless its key was taken.

        Raises:
            LeadlineError: as `domain.idempotency.resolve` says.
            NoController: ZooKeeper was lost before the request was begun.

        """
        office = self._desk.office
        path = record_path(event.key)
        try:
            (node,) = await self._store.read_nodes([path])
            kept = self._judge(event, node)
            if kept is not None:
                event.settle(kept)
                return
            record = KeyRecord(
                state="begun",
                request=event.request,
                what=event.what,
                cause=event.cause,
                epoch=office.term.epoch,
                time=office.clock.wall_ms(),
            )
            data = encode_record(record)
            op: Op = CreateOp(path, data) if node is None else SetOp(path, data, node.version)
            await self._desk.writer.fenced([op])
        except ConnectionLoss:
            raise NoController("ZooKeeper was lost before the request was begun") from None
        if event.reply.done():  # whoever asked has gone: nothing will be done
            await self._desk.writer.fenced([DeleteOp(path, ANY_VERSION)])
            return
        self._under_way[event.key] = record
        mark = encode_record(msgspec.structs.replace(record, state="changed"))
        event.settle(Mark(SetOp(path, mark, ANY_VERSION), office.term.epoch))

    def _judge(self, event: TakeKey, node: ReadNode | None) -> StoredResponse | None:
        if node is None:
            return None
        try:
            record = decode_record(node.data)
        except msgspec.MsgspecError:
            raise RequestInDoubt("the record of this Idempotency-Key cannot be read") from None
        epoch = self._desk.office.term.epoch
        return resolve(record, event.request, epoch, under_way=event.key in self._under_way)

    async def on_keep(self, event: KeepAnswer) -> None:
        """Keep an answer, to be given again."""
        record = self._under_way.pop(event.key)
        done = msgspec.structs.replace(record, state="done", answer=event.answer)
        await self._desk.writer.fenced(
            [SetOp(record_path(event.key), encode_record(done), ANY_VERSION)]
        )
        event.settle(None)

    async def on_drop(self, event: DropKey) -> None:
        """Free a key whose request changed nothing; else its record says what is known."""
        known = self._under_way.pop(event.key, None)
        if known is not None and not event.marked:
            await self._desk.writer.fenced([DeleteOp(record_path(event.key), ANY_VERSION)])

    # -- forgetting ------------------------------------------------------------

    async def reconcile(self, _event: events.Reconcile) -> None:
        """Now and then delete the records that are past their time."""
        now_ms = self._desk.office.clock.monotonic_ms()
        if self._tidied_ms is not None and now_ms - self._tidied_ms < TIDY_EVERY_MS:
            return
        self._tidied_ms = now_ms
        await self._tidy()

    async def _tidy(self) -> None:
        (names,) = await self._store.children([znodes.IDEMPOTENCY])
        await self._learn_times(names or [])
        keep_ms = self._desk.configs.current().idempotency_retention_ms
        oldest_ms = self._desk.office.clock.wall_ms() - keep_ms
        by_age = sorted(self._times, key=lambda name: (self._times[name], name))
        surplus = len(by_age) - MAX_RECORDS
        gone = [n for i, n in enumerate(by_age) if i < surplus or self._times[n] < oldest_ms]
        try:
            await self._desk.writer.fenced(
                [DeleteOp(f"{znodes.IDEMPOTENCY}/{name}", ANY_VERSION) for name in gone]
            )
        except MultiFailed as failure:  # one that somebody else has removed
            _log.warning("records of idempotency keys cannot be tidied: %s", failure)

    async def _learn_times(self, names: list[str]) -> None:
        """Read when the records were begun that are new here; forget those that are gone."""
        new = [name for name in names if name not in self._times]
        nodes = await self._store.read_nodes([f"{znodes.IDEMPOTENCY}/{name}" for name in new])
        known = {name: self._times[name] for name in names if name in self._times}
        for name, node in zip(new, nodes, strict=True):
            if node is not None:
                known[name] = _begun_at(node.data)
        self._times = known


def _begun_at(data: bytes) -> int:
    """Return when a record was begun; what cannot be read is as old as can be."""
    try:
        return decode_record(data).time
    except msgspec.MsgspecError:
        return 0
