"""Running an application: uvicorn on uvloop and httptools, on a socket that is already bound.

The port is known before the server starts, so that a service can publish its address first.
SIGTERM and SIGINT shut it down. The service first hands over its work while it still serves
requests; a second signal cuts that short. Then long polls may take two more seconds.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from leadline_client.errors import InvalidRequest
from leadline_common.http.accepting import PlainListener
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.connections import answer_of, protocol_of
from leadline_common.http.handshakes import HandshakeListener
from leadline_common.http.internal_listener import InternalListener
from leadline_common.http.listeners import Listener
from leadline_common.http.public_tls import PublicTls
from leadline_common.http.tls import InternalProtocol
from leadline_common.http.tls_files import TlsFiles
from leadline_common.http.websocket_connections import BoundedWebSocket
from leadline_common.metrics import Metrics
from leadline_common.process_errors import ServiceFailed
from leadline_common.settings.fields import ServiceSettings
from leadline_common.started_threads import WORKERS, started_threads

GRACE_S: Final = 2
"""How long a stopping server waits for requests in progress."""

_CLOSE_TIMEOUT_S: Final = 24 * 3_600.0
"""More than the bounds of connections allow, which end slow readers much earlier."""
_DATE_EVERY_S: Final = 1.0
"""How often the `Date` of responses is made."""
_SPEAK_TLS: Final = "this port speaks TLS: begin the address with https://"

logger = structlog.get_logger(__name__)


async def serve(
    app: ASGIApp,
    listener: Listener,
    *,
    hand_over: Callable[[], Coroutine[Any, Any, None]] | None = None,
    stopping: Callable[[], None] | None = None,
    max_message_bytes: int = 0,
    internal: InternalListener | None = None,
    bounds: ConnectionBounds | None = None,
    files: TlsFiles | None = None,
) -> None:
    """Serve `app` until SIGTERM or SIGINT, then finish within about `GRACE_S` seconds.

    With `internal`, other services are served on that listener. Changes of `files` are used.

    A `max_message_bytes` above 0 enables WebSockets, without compression. The application
    itself must check whether their other end is alive.

    At the signal `hand_over` is awaited while requests are still served; a second signal
    cancels it. Then `stopping` is called, for instance to complete long polls. Returns after
    the last response and the end of the lifespan. `bounds` limit the connections; the settings'
    defaults apply without them.
    """
    bounds = bounds or ConnectionBounds(ServiceSettings(), Metrics(process=False))
    config = uvicorn.Config(
        app,
        http=protocol_of(bounds),
        ws=BoundedWebSocket if max_message_bytes else "none",
        ws_max_size=max_message_bytes,
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=bounds.settings.connections_max_idle_ms // 1000,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config, hand_over, stopping or (lambda: None), bounds)
    server.add_listeners(listener, internal)
    logger.info(
        "listening", url=listener.url, internal_url=internal.url if internal is not None else None
    )
    watching = asyncio.create_task((files or TlsFiles()).watch(), name="tls-files")
    try:
        await server.serve(sockets=[])  # Our own listeners accept all connections.
    except asyncio.CancelledError:
        await server.lifespan.shutdown()
        raise
    finally:
        watching.cancel()
    logger.info("stopped", url=listener.url)


class _Server(uvicorn.Server):
    """uvicorn, with signals handled by the event loop.

    uvicorn raises a signal again once it has stopped, which would end the process before the
    service has closed its logs and its session.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        hand_over: Callable[[], Coroutine[Any, Any, None]] | None,
        stopping: Callable[[], None],
        bounds: ConnectionBounds,
    ) -> None:
        super().__init__(config)
        self._bounds = bounds
        self._listen: list[Callable[[], PlainListener | HandshakeListener]] = []
        self._listeners: list[PlainListener | HandshakeListener] = []
        self._hand_over = hand_over
        self._stopping = stopping
        self._stopped = asyncio.Event()
        self._handing_over: asyncio.Task[None] | None = None

    def add_listeners(self, public: Listener, internal: InternalListener | None) -> None:
        """Serve on these listeners."""
        if public.tls is not None:
            self._listen.append(partial(self._listen_publicly, public.socket, public.tls))
        else:
            self._listen.append(partial(self._listen_plainly, public.socket))
        if internal is not None:
            self._listen.append(partial(self._listen_internally, internal))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._listeners = [listen() for listen in self._listen]
            for listener in self._listeners:
                listener.start()

    async def main_loop(self) -> None:
        """Keep the `Date` of responses up to date until the server is to stop.

        uvicorn looks ten times a second whether it is to stop: a sixth of what an idle broker does.
        """
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_EVERY_S):
                    await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self._listeners:
            listener.close()
        for listener in self._listeners:
            if isinstance(listener, PlainListener):
                await listener.all_begun()
        await super().shutdown(sockets)

    def _listen_plainly(self, listening: socket.socket) -> PlainListener:
        return PlainListener(listening, self._create_protocol, self._bounds)

    def _listen_publicly(self, listening: socket.socket, tls: PublicTls) -> HandshakeListener:
        """Serve clients over TLS as over plain HTTP."""
        return HandshakeListener(
            listening,
            tls,
            self._create_protocol,
            self._bounds,
            plain_answer=answer_of(InvalidRequest(_SPEAK_TLS)),
            most=self._bounds.most_handshakes,
            close_timeout_s=_CLOSE_TIMEOUT_S,
        )

    def _create_protocol(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        made: asyncio.Protocol = protocol(self.config, self.server_state, self.lifespan.state)
        return made

    def _listen_internally(self, internal: InternalListener) -> HandshakeListener:
        """Serve the same application to other services, with state and connections in common."""

        def create_protocol() -> InternalProtocol:
            return InternalProtocol(self.config, self.server_state, self.lifespan.state)

        return HandshakeListener(internal.socket, internal.tls, create_protocol, self._bounds)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self._handing_over is not None:
            self._handing_over.cancel()
        elif self._hand_over is None:
            self._stop()
        else:
            self._handing_over = asyncio.create_task(self._hand_over(), name="hand over")
            self._handing_over.add_done_callback(self._handed_over)

    def _handed_over(self, task: asyncio.Task[None]) -> None:
        """Stop, whether the hand-over succeeded or not."""
        if not task.cancelled() and task.exception() is not None:
            logger.error("hand-over failed", exc_info=task.exception())
        self._stop()

    def _stop(self) -> None:
        if not self.should_exit:
            self.should_exit = True
            self._stopped.set()
            self._stopping()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run the main coroutine of a service on uvloop.

    The threads for work that blocks start with it, so that a process that needs all of them for
    the first time after hours does not look like one that leaks threads.

    Raises:
        SystemExit: with 1, if the service failed. Within the loop it would skip what else has to
            end, such as sessions.

    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_default_executor(started_threads("worker", WORKERS))
        try:
            runner.run(main)
        except ServiceFailed:
            raise SystemExit(1) from None
