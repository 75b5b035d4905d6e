"""Audit exports of other controllers, read over HTTP line by line."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import msgspec

from leadline_client.errors import ConnectionLost, error_from_body
from leadline_common.audit_export import EXPORT_PATH, decode_line, imported
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.identity import ServiceAddress
from leadline_controller.domain.history import AuditRecord

_BATCH = 500
_LONGEST_LINE = 4 * 1024 * 1024
_PLAIN = {"Accept-Encoding": "identity"}
"""Compression would cost the exporting controller more than sending the plain lines."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=2.0, sock_read=30.0)


class HttpPeerAuditClient:
    """Implements `runtime.ports.PeerAuditClient`."""

    def __init__(self, connections: PeerConnections | None = None) -> None:
        self._connections = connections or PeerConnections()

    async def export(self, peer: ServiceAddress, first: int) -> AsyncIterator[list[AuditRecord]]:
        """Yield the records of a controller in batches, starting with the id `first`.

        Raises:
            ConnectionLost: the controller did not respond, or its export is invalid.
            LeadlineError: the controller responded with this error.

        """
        to = self._connections.to(peer)
        if to is None:
            raise ConnectionLost(f"{peer.service} has no internal listener")
        async with aiohttp.ClientSession(read_bufsize=_LONGEST_LINE) as session:
            try:
                async with session.get(
                    to.url + EXPORT_PATH,
                    params={"after": first - 1},
                    headers=_PLAIN,
                    timeout=_TIMEOUT,
                    ssl=to.ssl,
                    server_hostname=to.server_hostname,
                ) as response:
                    if response.status != 200:
                        raise error_from_body(response.status, await response.json())
                    async for records in _batches(response.content):
                        yield records
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
                raise ConnectionLost(f"no audit export from {to.url}: {problem!r}") from problem


async def _batches(lines: aiohttp.StreamReader) -> AsyncIterator[list[AuditRecord]]:
    records: list[AuditRecord] = []
    async for line in lines:
        try:
            entry = decode_line(line)
        except msgspec.MsgspecError as problem:
            raise ValueError(f"invalid audit entry in the export: {problem}") from problem
        records.append(AuditRecord(entry.id, entry.zxid, imported(entry)))
        if len(records) == _BATCH:
            yield records
            records = []
    if records:
        yield records
