"""The coordinator's requests to brokers over HTTP: where partitions begin and end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import aiohttp
import msgspec

from leadline_client.wire import Metadata, TopicPartition
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.identity import ServiceAddress
from leadline_common.rpc import JSON
from leadline_coordinator.domain.records import Ends

_TIMEOUT: Final = aiohttp.ClientTimeout(total=10, sock_connect=2)
_QUICK: Final = aiohttp.ClientTimeout(total=1, sock_connect=1)
"""For what a commit waits for."""
_MAX_NAMED: Final = 6_000
"""Characters of topic names in a query: servers limit URLs. Beyond it, all topics are read."""
_FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, KeyError)


class HttpBrokerClient:
    """See `runtime.ports.BrokerClient`. Connections are reused."""

    def __init__(self, connections: PeerConnections | None = None) -> None:
        self._connections = connections or PeerConnections()
        self._leaders: dict[TopicPartition, ServiceAddress] = {}
        """The leaders that last told where a log ends."""

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        """The session, opened by the first request: only then does an event loop run."""
        return aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), headers={"Content-Type": JSON}
        )

    async def offsets(
        self,
        brokers: Sequence[ServiceAddress],
        topic_partitions: Collection[TopicPartition],
        timestamp: int | None,
    ) -> Mapping[TopicPartition, Ends]:
        """Ask all leaders at once; leave out partitions whose leader does not answer."""
        metadata = await self._metadata(brokers, {one.topic for one in topic_partitions})
        if metadata is None:
            return {}
        by_leader: dict[ServiceAddress, list[TopicPartition]] = {}
        for topic_partition, leader in _leaders(metadata, brokers):
            if topic_partition in topic_partitions:
                by_leader.setdefault(leader, []).append(topic_partition)
        answers = await asyncio.gather(
            *(self._ask(leader, led, timestamp) for leader, led in by_leader.items())
        )
        return {led: ends for answer in answers for led, ends in answer.items()}

    async def log_ends(
        self, brokers: Sequence[ServiceAddress], topic_partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Ask the leaders that answered last, and look for those of the other partitions."""
        led: dict[ServiceAddress, list[TopicPartition]] = {}
        for one in topic_partitions:
            if one in self._leaders:
                led.setdefault(self._leaders[one], []).append(one)
        found = await self._ask_ends(led)
        lost = set(topic_partitions) - found.keys()
        if lost:
            for one in lost:
                self._leaders.pop(one, None)
            found |= await self._find_ends(brokers, lost)
        return found

    async def _find_ends(
        self, brokers: Sequence[ServiceAddress], topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Ask the leaders that the metadata names, and remember those that answer."""
        topics = {one.topic for one in topic_partitions}
        metadata = await self._metadata(brokers, topics, _QUICK)
        led: dict[ServiceAddress, list[TopicPartition]] = {}
        for one, leader in () if metadata is None else _leaders(metadata, brokers):
            if one in topic_partitions:
                led.setdefault(leader, []).append(one)
        found = await self._ask_ends(led)
        self._leaders |= {one: to for to, many in led.items() for one in many if one in found}
        return found

    async def _ask_ends(
        self, led: Mapping[ServiceAddress, Sequence[TopicPartition]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        asking = (self._rows(leader, many, None, _QUICK) for leader, many in led.items())
        answers = await asyncio.gather(*asking)
        return {
            TopicPartition(row["topic"], row["partition"]): (
                row["offsets"]["log_end_offset"],
                row["offsets"]["leader_epoch"],
            )
            for rows in answers
            for row in rows
        }

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _metadata(
        self,
        brokers: Sequence[ServiceAddress],
        topics: Collection[str],
        limits: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> Metadata | None:
        names = ",".join(sorted(topics))
        params = {"topics": names} if len(names) <= _MAX_NAMED else {}
        for broker in brokers:
            with suppress(*_FAILURES):
                return Metadata.from_json(
                    await self._send("GET", broker, "/v1/metadata", limits, params=params)
                )
        return None

    async def _ask(
        self, leader: ServiceAddress, led: Sequence[TopicPartition], timestamp: int | None
    ) -> dict[TopicPartition, Ends]:
        return dict(_ends(row) for row in await self._rows(leader, led, timestamp, _TIMEOUT))

    async def _rows(
        self,
        leader: ServiceAddress,
        led: Sequence[TopicPartition],
        timestamp: int | None,
        limits: aiohttp.ClientTimeout,
    ) -> list[Any]:
        """Ask a leader; return the rows of the partitions that it answers for."""
        rows: list[dict[str, Any]] = [
            {"topic": topic, "partition": number, "timestamp": timestamp} for topic, number in led
        ]
        body = msgspec.json.encode({"partitions": rows})
        try:
            answer = await self._send("POST", leader, "/v1/offsets", limits, data=body)
            return [row for row in answer["partitions"] if row["error_code"] == 0]
        except _FAILURES:
            return []

    async def _send(
        self,
        method: str,
        broker: ServiceAddress,
        path: str,
        limits: aiohttp.ClientTimeout,
        **content: Any,
    ) -> Any:
        """Send a request, and decode its answer."""
        to = self._connections.to(broker)
        if to is None:
            raise OSError(f"{broker.service} has no internal listener")
        async with self._session.request(
            method,
            to.url + path,
            timeout=limits,
            ssl=to.ssl,
            server_hostname=to.server_hostname,
            **content,
        ) as answer:
            answer.raise_for_status()
            return msgspec.json.decode(await answer.read())


def _leaders(
    metadata: Metadata, brokers: Sequence[ServiceAddress]
) -> list[tuple[TopicPartition, ServiceAddress]]:
    by_id = {broker.service.id: broker for broker in brokers}
    return [
        (TopicPartition(topic.name, partition.partition), by_id[partition.leader])
        for topic in metadata.topics.values()
        for partition in topic.partitions
        if partition.leader in by_id
    ]


def _ends(row: Mapping[str, Any]) -> tuple[TopicPartition, Ends]:
    offsets = row["offsets"]
    ends = Ends(offsets["log_start_offset"], offsets["high_watermark"], offsets["offset"])
    return TopicPartition(row["topic"], row["partition"]), ends
