"""The logs that could not be opened when the broker started, and what stands for them meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from leadline_broker.adapters.log.committed_ends import CommittedEnds
from leadline_broker.adapters.log.errors import DiskFull, LogClosed, NoDescriptor
from leadline_broker.adapters.log.layout import PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.log.producer_replay import OnSegment, nothing
from leadline_broker.domain.state import ReplicaKey
from leadline_client.errors import StorageFailed

_RETRIABLE: Final = (DiskFull, NoDescriptor)


@dataclass(eq=False)
class UnopenedLogs:
    """The logs of one directory that are not open, by (topic id, partition), until they are.

    A replica whose log cannot be read has a directory id of its own (rule R17), so that it does not
    count as one that has all of its records. Its high watermark stays as it was. If only space or a
    descriptor was missing, `open_again` opens its log later. It stays out of use until the broker
    registers again, without that id: others must not know it by two.

    Attributes:
        open_log: opens a log; it may raise StorageFailed.
        failures: why each of them could not be opened.
        identities: topic, topic id and partition of each.
        committed: what the checkpoint told of all logs.
        high_watermarks: those of these logs, as far as the checkpoint has them.
        directory_ids: those of their own.

    """

    open_log: Callable[[PartitionIdentity, OnSegment], PartitionLog]
    failures: dict[ReplicaKey, StorageFailed] = field(default_factory=dict, init=False)
    identities: dict[ReplicaKey, PartitionIdentity] = field(default_factory=dict, init=False)
    committed: CommittedEnds = field(default=CommittedEnds({}, are_known=True), init=False)
    high_watermarks: dict[ReplicaKey, int] = field(default_factory=dict, init=False)
    directory_ids: dict[ReplicaKey, str] = field(default_factory=dict, init=False)
    _retriable: dict[ReplicaKey, None] = field(default_factory=dict, init=False)
    _being_opened: ReplicaKey | None = field(default=None, init=False)
    _opened: dict[ReplicaKey, PartitionLog] = field(default_factory=dict, init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False)
    _choosing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _is_released: bool = field(default=False, init=False)

    def tried(
        self, identity: PartitionIdentity, on_segment: OnSegment = nothing
    ) -> PartitionLog | StorageFailed:
        """Open a log, or return why it cannot be opened. Thread-safe."""
        try:
            return self.open_log(identity, on_segment)
        except StorageFailed as error:
            return error

    def sorted_out(
        self, tried: Iterable[tuple[PartitionIdentity, PartitionLog | StorageFailed]]
    ) -> list[PartitionLog]:
        """Return the logs that could be opened; note the others."""
        opened = []
        for identity, log in tried:
            if isinstance(log, PartitionLog):
                opened.append(log)
                continue
            self.failures[identity.key] = log
            self.identities[identity.key] = identity
            if isinstance(log, _RETRIABLE):
                self._retriable[identity.key] = None
        return opened

    def give_ids(self, committed: CommittedEnds) -> None:
        """Give what could not be opened an id of its own, and keep its high watermark."""
        self.directory_ids = dict.fromkeys(self.failures, uuid4().hex)
        self.committed = committed
        known = committed.by_key.keys() & self.failures
        self.high_watermarks = {key: committed.by_key[key] for key in known}

    @property
    def has_retriable(self) -> bool:
        """Whether `open_again` may open any."""
        return bool(self._retriable)

    def open_again(self) -> bool:
        """Open what only lacked space or a descriptor; return whether it is all open now.

        For a thread: recovery may take long.
        """
        with self._opening:
            for key in self._retriable.copy():
                if self._begins(key) and not self._is_opened_again(key):
                    return False
            return bool(self._opened)

    def _begins(self, key: ReplicaKey) -> bool:
        """Note that a log is being opened; return False if it need not be."""
        with self._choosing:
            is_wanted = key in self._retriable and key not in self._opened
            self._being_opened = key if is_wanted else None
            return is_wanted

    def _is_opened_again(self, key: ReplicaKey) -> bool:
        """Open a log; return False if that is to be tried again later."""
        log = self.tried(self.identities[key], self._require_unreleased)
        with self._choosing:
            self._being_opened = None
            if isinstance(log, PartitionLog):
                self._opened[key] = log
            elif not isinstance(log, _RETRIABLE):
                self.failures[key] = log
                del self._retriable[key]
        return not isinstance(log, _RETRIABLE)

    def _require_unreleased(self) -> None:
        if self._is_released:
            raise LogClosed("the broker stops")

    def cut_short(self) -> list[ReplicaKey]:
        """Return which of the logs that are open now lack committed records at their end."""
        with self._choosing:
            return [key for key, log in self._opened.items() if self.committed.is_short(log)]

    def opened(self) -> list[PartitionLog]:
        """Return the logs that are open now; from now on they are as any other log."""
        with self._choosing:
            found, self._opened = self._opened, {}
        for key in found:
            self._forget(key)
            del self.directory_ids[key]
        return list(found.values())

    def _forget(self, key: ReplicaKey) -> None:
        self._retriable.pop(key, None)
        self.high_watermarks.pop(key, None)
        del self.failures[key], self.identities[key]

    def give_up(self, key: ReplicaKey) -> str | None:
        """Forget a log that is to be deleted or set aside; return the id of its own if it is one.

        Raises:
            StorageFailed: it is being opened just now.

        """
        with self._choosing:
            if key == self._being_opened:
                raise StorageFailed("the log is being recovered: ask again")
            opened = self._opened.pop(key, None)
            if opened is not None:
                opened.discard()
            if key not in self.failures:
                return None
            self._forget(key)
            return self.directory_ids[key]

    def release(self) -> None:
        """Open nothing more, and close what was opened again, without flushing.

        Nobody else may open the logs as long as one is being recovered here.
        """
        self._is_released = True
        with self._opening:
            for log in self._opened.values():
                log.discard()
            self._opened.clear()
