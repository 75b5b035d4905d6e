"""The services' calls of each other over the simulated network, in place of HTTP.

Their own clients still encode each request.
"""

from __future__ import annotations

import msgspec

from leadline_client.errors import ConnectionLost, error_from_body
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.service_calls import NotSent, ServiceCalls
from leadline_common.identity import InternalAddress, ServiceAddress
from tests.runtime_simulation.network import Network, host_of
from tests.runtime_simulation.web import NoAnswer, NotReached, Web, WebRequest

_CONNECT_S = 2.0


class SimulatedCalls(ServiceCalls):
    """Calls of routes between services, and of those for clients if applications are served."""

    def __init__(self, network: Network, web: Web) -> None:
        super().__init__(PeerConnections())
        self._network = network
        self._web = web

    async def post_internal(
        self, to: InternalAddress, path: str, body: bytes, content_type: str, timeout_ms: int
    ) -> bytes:
        """Return the body of a successful response."""
        name = host_of(to.url)
        return await self._network.post(name, path, body, content_type, timeout_ms / 1000)

    async def post(
        self, to: ServiceAddress, path: str, body: bytes, content_type: str, timeout_ms: int
    ) -> bytes:
        """Return the body of a successful response of a route for clients."""
        request = WebRequest("POST", path, (("content-type", content_type),), body)
        timeout_s = timeout_ms / 1000
        try:
            answer = await self._web.exchange(
                host_of(to.url),
                request,
                connect_s=min(_CONNECT_S, timeout_s),
                timeout_s=timeout_s,
            )
        except NotReached as failure:
            raise NotSent(str(failure)) from failure
        except NoAnswer as failure:
            raise ConnectionLost(str(failure)) from failure
        if answer.status != 200:
            raise error_from_body(answer.status, msgspec.json.decode(answer.body))
        return answer.body

    async def post_for_client(
        self, to: ServiceAddress, path: str, body: bytes, content_type: str, timeout_ms: int
    ) -> bytes:
        """Return the body of a successful response; nobody is authenticated here."""
        return await self.post(to, path, body, content_type, timeout_ms)
