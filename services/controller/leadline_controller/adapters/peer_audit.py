"""The histories of other controllers, read over HTTP line by line."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import msgspec

from leadline_client.errors import ConnectionLost, error_from_body
from leadline_common.audit_export import EXPORT_PATH, decode_line, imported
from leadline_controller.domain.history import AuditRecord

_BATCH = 500
_LONGEST_LINE = 4 * 1024 * 1024
_PLAIN = {"Accept-Encoding": "identity"}
"""Compressing would cost the controller that answers more than sending does."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=2.0, sock_read=30.0)


class HttpPeerAuditClient:
    """See `runtime.ports.PeerAuditClient`."""

    async def export(self, url: str, first: int) -> AsyncIterator[list[AuditRecord]]:
        """Yield a controller's records from the id `first` on, some at a time.

        Raises:
            LeadlineError: what the controller answered, or ConnectionLost when it did not.

        """
        async with aiohttp.ClientSession(read_bufsize=_LONGEST_LINE) as session:
            try:
                async with session.get(
                    url + EXPORT_PATH,
                    params={"after": first - 1},
                    headers=_PLAIN,
                    timeout=_TIMEOUT,
                ) as answer:
                    if answer.status != 200:
                        raise error_from_body(answer.status, await answer.json())
                    async for records in _batches(answer.content):
                        yield records
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
                raise ConnectionLost(f"no history from {url}: {problem!r}") from problem

    async def close(self) -> None:
        """Have nothing to close: each export has its own session."""


async def _batches(lines: aiohttp.StreamReader) -> AsyncIterator[list[AuditRecord]]:
    records: list[AuditRecord] = []
    async for line in lines:
        try:
            entry = decode_line(line)
        except msgspec.MsgspecError as problem:
            raise ValueError(f"a line is no audit entry: {problem}") from problem
        records.append(AuditRecord(entry.id, entry.zxid, imported(entry)))
        if len(records) == _BATCH:
            yield records
            records = []
    if records:
        yield records
