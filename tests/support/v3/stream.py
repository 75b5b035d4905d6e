"""A request whose body and response go on at the same time, which HTTP libraries seldom offer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.services.cluster import DEADLINE_S, Cluster


@dataclass
class RecordStream:
    """An open request that appends records; its response has begun with the first report."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    has_begun: bool = False

    async def send(self, data: bytes) -> None:
        """Send a part of the body."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def report(self) -> Any:
        """Return the next report."""
        async with asyncio.timeout(DEADLINE_S):
            if not self.has_begun:
                head = await self.reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 "), head
                self.has_begun = True
            while not (line := await self.reader.readline()).startswith(b"{"):
                assert line, "the response has ended"
            return json.loads(line)

    async def ask(self, data: bytes) -> Any:
        """Send a record, and return its report."""
        await self.send(data)
        return await self.report()


@asynccontextmanager
async def open_stream(cluster: Cluster, name: str, path: str) -> AsyncIterator[RecordStream]:
    """Open a stream to a broker."""
    address = urlsplit(cluster.url(name))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    writer.write(head.encode())
    try:
        yield RecordStream(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
