"""A reverse proxy with TLS that asks for a token, in front of a cluster.

    async with TokenProxy(cluster, "first", directory) as proxy:
        client = AsyncClient(proxy.url("broker-1"), security=Security(proxy.ca_file, "first"))
        await proxy.accept_only("second")

Clients see only its addresses: it replaces those of the services in whatever these answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web

from leadline_cli.authorities import PUBLIC
from leadline_cli.certificates import Authority
from leadline_cli.credentials import LOOPBACK_HOSTS, client_security
from leadline_client.errors import Unauthorized
from leadline_client.security import Authenticator
from leadline_common.identity import ServiceIdentity
from tests.support.services.cluster import Cluster

_HOP_BY_HOP = {"connection", "content-length", "host", "transfer-encoding", "upgrade"}
_LARGEST_BODY = 64 << 20


class TokenProxy:
    """Has a port for each broker and coordinator, and an authority of its own.

    `accepted` and `refused` count requests by the token that they showed, "" without one;
    `channels` counts those that opened a channel.
    """

    def __init__(self, cluster: Cluster, token: str, directory: Path) -> None:
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.channels: Counter[str] = Counter()
        self._token = token
        self._cluster = cluster
        self._directory = directory
        self._authenticator = Authenticator(client_security(cluster.data_dir))
        self._urls: dict[str, str] = {}
        self._open: set[web.WebSocketResponse] = set()
        self._stack = AsyncExitStack()

    @property
    def ca_file(self) -> str:
        """The authority that has signed the proxy's certificate."""
        return str(self._directory / "proxy-ca.pem")

    def url(self, name: str) -> str:
        """Return the proxy's address of a service."""
        return self._urls[self._cluster.url(name)]

    async def accept_only(self, token: str) -> None:
        """Refuse all other tokens from now on, and close the channels that they opened."""
        self._token = token
        for channel in tuple(self._open):
            await channel.close()

    async def __aenter__(self) -> Self:
        """Listen, on a free port for each service."""
        self._http = await self._stack.enter_async_context(
            aiohttp.ClientSession(auto_decompress=False)
        )
        tls = self._context()
        for service in (*self._cluster.file.brokers, *self._cluster.file.coordinators):
            app = web.Application(client_max_size=_LARGEST_BODY)
            app.router.add_route("*", "/{path:.*}", partial(self._handle, service.url))
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
            await runner.setup()
            self._stack.push_async_callback(_end, runner)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            self._urls[service.url] = f"https://127.0.0.1:{runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        await self._stack.aclose()

    def _context(self) -> ssl.SSLContext:
        authority = Authority.new(name_text=PUBLIC)
        Path(self.ca_file).write_bytes(authority.certificate_pem)
        certificate = self._directory / "proxy.pem"
        certificate.write_bytes(
            authority.issue_public(ServiceIdentity("broker", 1), LOOPBACK_HOSTS)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        return context

    async def _handle(self, service: str, request: web.Request) -> web.StreamResponse:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if shown != self._token:
            self.refused[shown] += 1
            return web.json_response(Unauthorized("unknown token").body(), status=401)
        self.accepted[shown] += 1
        if request.headers.get("Upgrade", "").lower() == "websocket":
            self.channels[shown] += 1
            return await self._connect(service, request)
        async with self._http.request(
            request.method,
            service + request.raw_path,
            data=await request.read(),
            headers=self._headers(request),
            ssl=self._authenticator.tls,
        ) as answer:
            body = await answer.read()
            kept = {name: text for name, text in answer.headers.items() if _is_kept(name)}
            return web.Response(
                body=self._replaced(body, answer), status=answer.status, headers=kept
            )

    async def _connect(self, service: str, request: web.Request) -> web.WebSocketResponse:
        """Carry frames in both directions until either side closes."""
        near = web.WebSocketResponse(compress=False)
        headers = {"Authorization": self._headers(request).get("Authorization", "")}
        async with self._http.ws_connect(
            service.replace("http", "ws", 1) + request.raw_path,
            ssl=self._authenticator.tls,
            headers=headers if headers["Authorization"] else {},
        ) as far:
            await near.prepare(request)
            self._open.add(near)
            both = [asyncio.create_task(_carry(near, far)), asyncio.create_task(_carry(far, near))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            self._open.discard(near)
            await far.close()
            await near.close()
            await asyncio.gather(*both, return_exceptions=True)
        return near

    def _headers(self, request: web.Request) -> dict[str, str]:
        """Return the headers of a request, with the token of the cluster if it has one."""
        hidden = {"authorization", "accept-encoding"}
        kept = {
            name: text
            for name, text in request.headers.items()
            if _is_kept(name) and name.lower() not in hidden
        }
        shown = self._authenticator.headers("https", None)
        return kept | {name.title(): text for name, text in shown.items()}

    def _replaced(self, body: bytes, answer: aiohttp.ClientResponse) -> bytes:
        if answer.content_type == "application/json":
            for service, own in self._urls.items():
                body = body.replace(service.encode(), own.encode())
        return body


async def _end(runner: web.AppRunner) -> None:
    """Stop a server at once: clients keep idle connections, and would not answer TLS's goodbye."""
    server = runner.server
    for connection in server.connections if server else ():
        if connection.transport is not None:
            connection.transport.abort()
    await runner.cleanup()


async def _carry(source: Any, sink: Any) -> None:
    async for message in source:
        await sink.send_str(message.data)


def _is_kept(name: str) -> bool:
    return name.lower() not in _HOP_BY_HOP
