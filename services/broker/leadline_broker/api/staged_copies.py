"""What leaders say to the other replicas about what is staged: bulk RPC, documented too."""

from __future__ import annotations

from typing import Final

from leadline_broker.runtime.broker import Broker
from leadline_client.errors import (
    FencedLeaderEpoch,
    StagingFull,
    StaleIncarnation,
    StorageFailed,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownStaged,
)
from leadline_common import staged_copies as copies
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_route

_FRAME_BYTES: Final = 64 * 1024
"""What a request has besides the upload that it carries."""
_NOT_HERE: Final = (StaleIncarnation, UnknownPartition, FencedLeaderEpoch, UnknownLeaderEpoch)


def add_staged_copies(app: ServiceApp, broker: Broker, max_body_bytes: int) -> None:
    """Add the routes; an upload has at most `max_body_bytes`."""

    async def keep(request: copies.KeepStagedRequest) -> copies.StagedDone:
        return await broker.engine.copy_store.keep(request)

    async def drop(request: copies.DropStagedRequest) -> copies.StagedDone:
        return await broker.engine.copy_store.drop(request)

    async def read(request: copies.ReadStagedRequest) -> copies.StagedRecords:
        return await broker.engine.copy_store.read(request)

    bulk_route(
        app,
        copies.KEEP_STAGED_PATH,
        keep,
        copies.KeepStagedRequest,
        copies.StagedDone,
        name="keep_staged",
        summary="Keep a copy of what is staged with a leader",
        description=(
            "From the leader that the replica here follows. The copy is on this broker's disk "
            "when the answer comes, and can be published here should this broker lead."
        ),
        encoding="msgpack",
        errors=[*_NOT_HERE, StagingFull, StorageFailed],
        max_body_bytes=max_body_bytes + _FRAME_BYTES,
    )
    bulk_route(
        app,
        copies.DROP_STAGED_PATH,
        drop,
        copies.DropStagedRequest,
        copies.StagedDone,
        name="drop_staged_copies",
        summary="Let go of copies of what was staged with a leader",
        description=(
            "From the leader, once they are published or dropped. What is not here is passed over."
        ),
        encoding="msgpack",
        errors=_NOT_HERE,
    )
    bulk_route(
        app,
        copies.READ_STAGED_PATH,
        read,
        copies.ReadStagedRequest,
        copies.StagedRecords,
        name="read_staged",
        summary="Return the copy of what was staged with a former leader",
        description="From a leader that is to publish it and lacks it.",
        encoding="msgpack",
        errors=[*_NOT_HERE, UnknownStaged, StorageFailed],
        changes_nothing=True,
    )
