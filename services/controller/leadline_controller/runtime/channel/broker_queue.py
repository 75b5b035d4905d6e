"""Everything that one broker has to be told, until it has acknowledged it (rule R8).

Invariant: what is owed is pending or in flight; it is forgotten only when the
broker acknowledged it, or when this incarnation of the broker is gone.

Only names are pending: a request is built when it is sent, so that the latest
state wins and any number of changes cost one row. One request is under way at a
time; different brokers are told side by side. Order: roles, metadata, stops, round and round.
Failures are retried with growing pauses, for as long as the incarnation lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import TypeAlias

import msgspec

from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    StaleControllerEpoch,
    TopicIdMismatch,
)
from leadline_client.wire import TopicPartition
from leadline_common import rpc
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.channel.requests import Commands, Sent
from leadline_controller.runtime.ports import BrokerGateway

_log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0

_Names: TypeAlias = dict[str, dict[int, None]]


class Command(StrEnum):
    """The kinds of commands, as metrics and logs name them."""

    GRANT = "full_grant"
    ROLES = "leader_and_isr"
    METADATA = "update_metadata"
    STOP = "stop_replica"
    HALT = "halt_replica"


class Listener(msgspec.Struct, frozen=True):
    """Who is told what: progress of any kind, doubts about partitions, the loss of office."""

    progress: Callable[[], None]
    doubt: Callable[[list[TopicPartition]], None]
    deposed: Callable[[str], None]
    sent: Callable[[Command, bool, int], None]
    """Told of each request: whether it was answered, and the bytes of its body."""
    holds_metadata: Callable[[], bool]
    """Asked whether metadata should wait, because more changes are being written."""


class BrokerRequestQueue:
    """The sender of one incarnation of one broker; `run` is its task."""

    def __init__(
        self,
        broker: BrokerRegistration,
        image: ClusterImage,
        commands: Commands,
        gateway: BrokerGateway,
        listener: Listener,
        ack_timeout_ms: int,
    ) -> None:
        self.broker = broker
        self.cause = ""
        self._image = image
        self._commands = commands
        self._gateway = gateway
        self._listener = listener
        self._ack_timeout_ms = ack_timeout_ms
        self._wake = asyncio.Event()
        self._grant = False
        self._roles: _Names = {}
        self._stops: _Names = {}
        self._halts: _Names = {}
        self._in_flight: tuple[Command, _Names] | None = None
        self._is_silent = False
        self._acked_version: int | None = None

    # -- what is owed ----------------------------------------------------------

    def owe_grant(self) -> None:
        """Owe the full grant, which holds all roles."""
        self._grant = True
        self._roles.clear()
        self._wake.set()

    def owe_roles(self, topic: str, partitions: Iterable[int]) -> None:
        """Owe LeaderAndISR for partitions; a grant that is still owed holds them anyway."""
        if not self._grant:
            self._roles.setdefault(topic, {}).update(dict.fromkeys(partitions))
        self._wake.set()

    def owe_stop(self, topic: str, partitions: Iterable[int]) -> None:
        """Owe StopReplica with deletion; roles in these partitions are owed no more."""
        numbers = dict.fromkeys(partitions)
        self._stops.setdefault(topic, {}).update(numbers)
        roles = self._roles.pop(topic, {})
        left = {number: None for number in roles if number not in numbers}
        if left:
            self._roles[topic] = left
        self._wake.set()

    def owe_halt(self, topic: str, partitions: Iterable[int]) -> None:
        """Owe StopReplica that keeps the log, after the roles: the broker is about to stop.

        Who has led until now hears of its successor first, and can answer what it owes.
        """
        self._halts.setdefault(topic, {}).update(dict.fromkeys(partitions))
        self._wake.set()

    def metadata_changed(self) -> None:
        """Note that there may be newer metadata than the broker has."""
        self._wake.set()

    def metadata_is(self, version: int) -> None:
        """Note which version the broker says that it serves (it may have lost what it had)."""
        if self._in_flight is None and version != self._acked_version:
            self._acked_version = None
            self._wake.set()

    @property
    def owes_roles(self) -> bool:
        """Whether any role is owed."""
        return self._grant or bool(self._roles) or self._flying(Command.GRANT, Command.ROLES)

    @property
    def owes_stops(self) -> bool:
        """Whether a stop of any replica is owed."""
        return bool(self._stops or self._halts) or self._flying(Command.STOP, Command.HALT)

    @property
    def idle(self) -> bool:
        """Whether nothing at all is owed."""
        return not (self.owes_roles or self.owes_stops or self._behind or self._in_flight)

    @property
    def _behind(self) -> bool:
        behind = self._acked_version != self._image.version
        return behind and not self._listener.holds_metadata()

    def owes(self, topic: str) -> bool:
        """Tell whether a role in a topic, or a stop of it, is owed."""
        if self._grant or topic in self._roles or topic in self._stops:
            return True
        if self._in_flight is None:
            return False
        command, names = self._in_flight
        return command is Command.GRANT or topic in names

    def owes_stop_of(self, topic: str, partitions: Iterable[int]) -> bool:
        """Tell whether a stop with deletion of any of these partitions is owed."""
        owed = set(self._stops.get(topic, ()))
        if self._in_flight is not None and self._in_flight[0] is Command.STOP:
            owed |= self._in_flight[1].get(topic, {}).keys()
        return not owed.isdisjoint(partitions)

    def knows(self, version: int) -> bool:
        """Tell whether the broker serves metadata of this version or later."""
        return self._acked_version is not None and self._acked_version >= version

    def _flying(self, *commands: Command) -> bool:
        return self._in_flight is not None and self._in_flight[0] in commands

    # -- the task --------------------------------------------------------------

    async def run(self) -> None:
        """Send what is owed until cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            if self.idle:
                self._wake.clear()
                await self._wake.wait()
            if await self._send_round():
                pause = FIRST_PAUSE_S
            else:
                self._wake.clear()
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _send_round(self) -> bool:
        """Send what is owed of each kind; False when some of it has to be repeated.

        What a broker refuses keeps nothing else waiting. One that does not answer
        at all is asked nothing further for now.
        """
        self._is_silent = False
        fine = True
        for send in (
            self._send_all_roles,
            self._send_metadata,
            partial(self._send_stops, Command.STOP),
            partial(self._send_stops, Command.HALT),
        ):
            fine = await send() and fine
            self._listener.progress()
            if self._is_silent:
                return False
        return fine

    async def _send_all_roles(self) -> bool:
        """Send roles, and those that are written meanwhile: a failover waits for no metadata."""
        while await self._send_owed_roles():
            if not (self._grant or self._roles):
                return True
        return False

    async def _send_owed_roles(self) -> bool:
        if self._grant:
            sent = self._commands.grant(self.broker, self.cause)
            return await self._send_roles(Command.GRANT, {}, sent)
        if self._roles:
            names, self._roles = self._roles, {}
            return await self._send_roles(
                Command.ROLES, names, self._commands.roles(self.broker, names, self.cause)
            )
        return True

    async def _send_roles(self, command: Command, names: _Names, sent: Sent) -> bool:
        self._grant = False
        if command is Command.ROLES and not sent.partitions:
            return True
        answer = await self._call(command, names, rpc.LEADER_AND_ISR_PATH, sent.body)
        if answer is None:
            self._owe_again(command, names)
            return False
        refused = self._refused(sent, answer)
        for name in refused:
            self.owe_roles(name.topic, [name.partition])
        if refused:
            self._listener.doubt(refused)
        return not refused

    def _owe_again(self, command: Command, names: _Names) -> None:
        if command is Command.GRANT:
            self.owe_grant()
        for topic, partitions in names.items():
            self.owe_roles(topic, partitions)

    async def _send_stops(self, command: Command) -> bool:
        owed = self._stops if command is Command.STOP else self._halts
        if not owed:
            return True
        names = dict(owed)
        owed.clear()
        delete = command is Command.STOP
        sent = self._commands.stop(self.broker, names, self.cause, delete=delete)
        if not sent.partitions:
            return True
        answer = await self._call(command, names, rpc.STOP_REPLICA_PATH, sent.body)
        owe_again = self.owe_stop if delete else self.owe_halt
        if answer is None:
            for topic, partitions in names.items():
                owe_again(topic, partitions)
            return False
        refused = self._refused(sent, answer, fine=(rpc.NO_ERROR, TopicIdMismatch.code))
        for name in refused:
            owe_again(name.topic, [name.partition])
        return not refused

    async def _send_metadata(self) -> bool:
        if not self._behind:
            return True
        body, version = self._commands.metadata(self.broker, self._acked_version, self.cause)
        answer = await self._call(Command.METADATA, {}, rpc.UPDATE_METADATA_PATH, body)
        # Whatever a broker has that did not take this one: the next is a full one.
        self._acked_version = version if answer and _served(answer) >= version else None
        return self._acked_version is not None

    async def _call(self, command: Command, names: _Names, path: str, body: bytes) -> bytes | None:
        """Send a request; None when it was not answered as it should be."""
        self._in_flight = (command, names)
        answer = None
        try:
            answer = await self._gateway.post(self.broker.url, path, body, self._ack_timeout_ms)
        except StaleControllerEpoch as refusal:
            self._listener.deposed(refusal.message)
        except LeadlineError as problem:
            self._is_silent = isinstance(problem, ConnectionLost)
            _log.warning(
                "broker %d did not take %s: %s", self.broker.id, command.value, problem.message
            )
        finally:
            self._in_flight = None
        self._listener.sent(command, answer is not None, len(body))
        return answer

    def _refused(
        self, sent: Sent, answer: bytes, fine: tuple[int, ...] = (rpc.NO_ERROR,)
    ) -> list[TopicPartition]:
        """Examine every code of an answer; an answer that is not one refuses everything."""
        codes: list[list[int]] = []
        with contextlib.suppress(msgspec.DecodeError):
            codes = msgspec.json.decode(answer, type=rpc.CommandResponse).codes
        if [len(row) for row in codes] != [len(numbers) for _, numbers in sent.partitions]:
            _log.error("broker %d answered with codes that do not fit", self.broker.id)
            codes = [[-1] * len(numbers) for _, numbers in sent.partitions]
        if any(StaleControllerEpoch.code in row for row in codes):
            self._listener.deposed(f"broker {self.broker.id} knows a later controller")
        return [
            TopicPartition(topic, number)
            for (topic, numbers), row in zip(sent.partitions, codes, strict=True)
            for number, code in zip(numbers, row, strict=True)
            if code not in fine
        ]


def _served(answer: bytes) -> int:
    """Return the metadata version that a broker says that it serves now."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(answer, type=rpc.UpdateMetadataResponse).version
    return -1
