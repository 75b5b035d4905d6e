"""Posting commands to one incarnation of one broker."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    StaleControllerEpoch,
    Unreachable,
)
from leadline_client.wire import TopicPartition
from leadline_common import rpc
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.tracing import spans
from leadline_common.znodes import BrokerRegistration
from leadline_controller.runtime.channel.answers import refusals
from leadline_controller.runtime.channel.listener import Command, DispatchListener
from leadline_controller.runtime.channel.requests import BrokerRequest
from leadline_controller.runtime.ports import CommandGateway

logger = structlog.get_logger(__name__)


@dataclass(eq=False)
class BrokerCalls:
    """Posts commands, and reads what the broker refuses.

    It `is_unreachable` if the connection of the last call failed, and `cannot_connect` if there was
    none at all. Both methods tell the listener if the broker knows a later controller.
    """

    broker: BrokerRegistration
    gateway: CommandGateway
    listener: DispatchListener
    ack_timeout_ms: int
    is_unreachable: bool = field(default=False, init=False)
    cannot_connect: bool = field(default=False, init=False)

    @property
    def _address(self) -> InternalAddress:
        return InternalAddress(ServiceIdentity("broker", self.broker.id), self.broker.internal_url)

    async def post(
        self, command: Command, path: str, body: bytes, span: spans.Span
    ) -> bytes | None:
        """Return the answer, or None if the request failed."""
        try:
            answer = await self.gateway.post(self._address, path, body, self.ack_timeout_ms)
        except LeadlineError as error:
            span.fail(type(error).__name__, error.message)
            if isinstance(error, StaleControllerEpoch):
                self.listener.controller_changed()
            self.cannot_connect = isinstance(error, Unreachable)
            self.is_unreachable = self.cannot_connect or isinstance(error, ConnectionLost)
            logger.warning(
                "broker request failed",
                broker=self.broker.id,
                command=command.value,
                error=error.message,
            )
            return None
        self.cannot_connect = False
        return answer

    def refusals(
        self, request: BrokerRequest, answer: bytes, accepted: tuple[int, ...] = (rpc.NO_ERROR,)
    ) -> list[TopicPartition]:
        """Return the partitions whose codes in an answer are not among those accepted."""
        refused = refusals(self.broker.id, request, answer, accepted)
        if any(code == StaleControllerEpoch.code for _, code in refused):
            self.listener.controller_changed()
        return [partition for partition, _ in refused]
