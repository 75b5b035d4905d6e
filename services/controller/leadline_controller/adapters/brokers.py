"""Requests to brokers: JSON RPC over mutual TLS."""

from __future__ import annotations

from leadline_client.errors import Unreachable
from leadline_common.http.service_calls import NotSent, ServiceCalls
from leadline_common.identity import InternalAddress
from leadline_common.rpc import JSON


class BrokerRpcClient:
    """Implements `runtime.ports.CommandGateway`."""

    def __init__(self, calls: ServiceCalls) -> None:
        self._calls = calls

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        """Send a JSON body and return the body of the response.

        Raises:
            Unreachable: there was no connection to the broker, and nothing was sent.
            ConnectionLost: the broker did not respond in time.
            LeadlineError: the broker responded with this error.

        """
        try:
            return await self._calls.post_internal(to, path, body, JSON, timeout_ms)
        except NotSent as error:
            raise Unreachable(error.message) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()
