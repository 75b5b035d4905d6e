"""The replicas on this broker as the API shows them.

There may be 60,000 of them, so they are described and encoded in turns of the event loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec
from pydantic import BaseModel, Field
from starlette.responses import Response

from leadline_broker.runtime.engine import Engine
from leadline_broker.runtime.replication.partition import FollowerInfo, ReplicaInfo
from leadline_common.api.models import example
from leadline_common.http.long_bodies import encode_record
from leadline_common.http.long_lists import LongListDecoder
from leadline_common.rpc import JSON
from leadline_common.slices import slices

MOST_PARTITIONS: Final = 999_999
_TOPIC_ID: Final = "b1946ac92492d2347c6235b4d2611184"


class FollowerBody(BaseModel):
    """A follower as its leader knows it; what it has not stated in this leader epoch is -1."""

    broker: int
    log_end_offset: int = Field(description="The durable end of its log")
    last_fetch_ms: int = Field(description="When it fetched last, in Unix ms")
    last_caught_up_ms: int = Field(description="When it had the whole log last, in Unix ms")


class ReplicaBody(BaseModel):
    """One local replica. Ends are exclusive offsets; only a leader has `isr` and `followers`.

    `role_epoch` is the leader epoch at which it took its role; null while it has none.
    """

    topic: str
    topic_id: str
    partition: int
    role: str
    role_epoch: int | None
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    durable_end_offset: int
    high_watermark: int
    isr: list[int] | None
    log_dir: str
    size_bytes: int = Field(description="The size of its log on disk")
    followers: list[FollowerBody] | None = None


class ReplicasBody(BaseModel):
    """Every local replica, by topic and partition."""

    model_config = example(
        {
            "replicas": [
                {
                    "topic": "orders",
                    "topic_id": _TOPIC_ID,
                    "partition": 0,
                    "role": "leader",
                    "role_epoch": 5,
                    "leader_epoch": 5,
                    "log_start_offset": 0,
                    "log_end_offset": 42,
                    "durable_end_offset": 42,
                    "high_watermark": 42,
                    "isr": [1, 2],
                    "log_dir": "/var/lib/leadline/orders-0",
                    "size_bytes": 73_400_320,
                    "followers": [
                        {
                            "broker": 2,
                            "log_end_offset": 42,
                            "last_fetch_ms": 1_790_000_060_000,
                            "last_caught_up_ms": 1_790_000_060_000,
                        }
                    ],
                }
            ]
        }
    )

    replicas: list[ReplicaBody]


class ReplicasReport(msgspec.Struct, frozen=True):
    """A `ReplicasBody` as another broker reads it."""

    replicas: list[ReplicaInfo]


REPORTS: Final = LongListDecoder(ReplicasReport, "replicas")


async def shown_replicas(
    engine: Engine, topic: str | None = None, first: int = 0, last: int = MOST_PARTITIONS
) -> list[ReplicaInfo]:
    """Return the local replicas, or partitions `first` to `last` of a topic, by topic and number.

    Times are in Unix ms. A replica that is removed meanwhile may be left out.
    """
    replicas, offset_ms = engine.replicas, engine.clock.wall_ms() - engine.clock.monotonic_ms()
    shown: list[ReplicaInfo] = []
    async for some in slices(replicas.ordered(topic)):
        shown += [
            _with_unix_times(one.describe(), offset_ms)
            for one in some
            if first <= one.partition <= last and one in replicas
        ]
    return shown


async def replicas_response(replicas: list[ReplicaInfo]) -> Response:
    """Return the response with these replicas, as `ReplicasBody` says."""
    encoded = await encode_record(ReplicasReport(replicas), "replicas")
    return Response(encoded, media_type=JSON)


def _with_unix_times(replica: ReplicaInfo, offset_ms: int) -> ReplicaInfo:
    if replica.followers is None:
        return replica

    def time(monotonic_ms: int) -> int:
        return monotonic_ms + offset_ms if monotonic_ms else -1

    followers = tuple(
        FollowerInfo(
            one.broker,
            one.log_end_offset,
            time(one.last_fetch_ms),
            time(one.last_caught_up_ms),
        )
        for one in replica.followers
    )
    return replace(replica, followers=followers)
