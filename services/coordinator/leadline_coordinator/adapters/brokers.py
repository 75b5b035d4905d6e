"""The coordinator's questions to brokers over HTTP: where partitions begin and end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import aiohttp
import msgspec

from leadline_client.wire import Metadata
from leadline_common.rpc import JSON
from leadline_coordinator.domain.records import Ends, Partition

_TIMEOUT: Final = aiohttp.ClientTimeout(total=10, sock_connect=2)
_MOST_NAMED: Final = 6_000
"""Characters of topics that are asked for by name: servers limit addresses. More means all."""
_FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, KeyError)


class HttpBrokerClient:
    """See `runtime.ports.BrokerClient`. Connections are kept and used again."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), headers={"Content-Type": JSON}
        )

    async def offsets(
        self, brokers: Sequence[str], partitions: Collection[Partition], timestamp: int | None
    ) -> Mapping[Partition, Ends]:
        """Ask the leaders, side by side; of a partition whose leader does not answer nothing."""
        metadata = await self._metadata(brokers, {topic for topic, _ in partitions})
        if metadata is None:
            return {}
        by_leader: dict[str, list[Partition]] = {}
        for name, url in _leaders(metadata):
            if name in partitions:
                by_leader.setdefault(url, []).append(name)
        answers = await asyncio.gather(
            *(self._ask(url, names, timestamp) for url, names in by_leader.items())
        )
        return {name: ends for answer in answers for name, ends in answer.items()}

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _metadata(self, brokers: Sequence[str], topics: Collection[str]) -> Metadata | None:
        names = ",".join(sorted(topics))
        params = {"topics": names} if len(names) <= _MOST_NAMED else {}
        for url in brokers:
            try:
                async with self._session.get(
                    url + "/v1/metadata", params=params, timeout=_TIMEOUT
                ) as answer:
                    answer.raise_for_status()
                    return Metadata.from_json(msgspec.json.decode(await answer.read()))
            except _FAILURES:
                continue
        return None

    async def _ask(
        self, url: str, partitions: Sequence[Partition], timestamp: int | None
    ) -> dict[Partition, Ends]:
        rows: list[dict[str, Any]] = [
            {"topic": topic, "partition": number, "timestamp": timestamp}
            for topic, number in partitions
        ]
        body = msgspec.json.encode({"partitions": rows})
        try:
            async with self._session.post(
                url + "/v1/offsets", data=body, timeout=_TIMEOUT
            ) as answer:
                answer.raise_for_status()
                found = msgspec.json.decode(await answer.read())["partitions"]
                return dict(_ends(row) for row in found if row["error_code"] == 0)
        except _FAILURES:
            return {}


def _leaders(metadata: Metadata) -> list[tuple[Partition, str]]:
    return [
        ((topic.name, partition.partition), metadata.brokers[partition.leader].url)
        for topic in metadata.topics.values()
        for partition in topic.partitions
        if partition.leader in metadata.brokers
    ]


def _ends(row: Mapping[str, Any]) -> tuple[Partition, Ends]:
    offsets = row["offsets"]
    ends = Ends(offsets["log_start_offset"], offsets["high_watermark"], offsets["offset"])
    return (row["topic"], row["partition"]), ends
