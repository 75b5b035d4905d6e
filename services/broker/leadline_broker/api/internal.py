"""The requests of the controller, of followers and of leaders to a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leadline_broker.runtime.cluster.controller_check import ControllerCheck
from leadline_broker.runtime.replication.commands import ControllerCommands
from leadline_broker.runtime.replication.fetch_sessions import FetchSessions
from leadline_broker.runtime.serving.routing import RoutedRequests
from leadline_broker.runtime.staging.staged_copy_store import StagedCopyStore
from leadline_client.errors import (
    BrokerFenced,
    CorruptBatch,
    FencedLeaderEpoch,
    FetchSessionUnknown,
    LeaderNotAvailable,
    LeadershipLost,
    LogTruncated,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    StagingFull,
    StaleControllerEpoch,
    StaleIncarnation,
    StorageFailed,
    TopicIdMismatch,
    UnknownControllerEpoch,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownStaged,
    UnknownTopic,
)
from leadline_common import routed_records as routed
from leadline_common import rpc
from leadline_common import staged_copies as copies
from leadline_common.bulk_offsets import PartitionEnds
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_route
from leadline_common.identity import ServiceIdentity

_ENVELOPE_BYTES: Final = 64 * 1024
"""The size of a request without the upload in it."""
_COPY_ERRORS: Final = (StaleIncarnation, UnknownPartition, FencedLeaderEpoch, UnknownLeaderEpoch)


_ROUTED_ERRORS: Final = (
    StaleIncarnation,
    UnknownTopic,
    UnknownPartition,
    TopicIdMismatch,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    NotLeader,
    LeaderNotAvailable,
    BrokerFenced,
)
_APPEND_ERRORS: Final = (
    CorruptBatch,
    NotEnoughReplicas,
    StorageFailed,
    RequestTimedOut,
    LeadershipLost,
    NotEnoughReplicasAfterAppend,
)
_COMMAND_ERRORS: Final = (
    StaleControllerEpoch,
    UnknownControllerEpoch,
    StaleIncarnation,
    BrokerFenced,
    StorageFailed,
)


def add_commands(
    app: ServiceApp, commands: Callable[[], ControllerCommands], check: ControllerCheck
) -> None:
    """Add the routes for the controller; `check` finds out whether it is the active one."""

    async def leader_and_isr(request: rpc.LeaderAndIsrRequest) -> rpc.CommandResponse:
        orders = commands()
        await check.admit(request)
        return await orders.leader_and_isr(request)

    async def stop_replica(request: rpc.StopReplicaRequest) -> rpc.CommandResponse:
        orders = commands()
        await check.admit(request)
        return await orders.stop_replica(request)

    bulk_route(
        app,
        rpc.LEADER_AND_ISR_PATH,
        leader_and_isr,
        rpc.LeaderAndIsrRequest,
        rpc.CommandResponse,
        name="leader_and_isr",
        summary="Grant roles to this broker's replicas",
        description=(
            "Sent by the controller (Replication V3, section C). With `is_init` the request is the "
            "broker's full grant. The response has an error code per partition, 0 for success."
        ),
        errors=_COMMAND_ERRORS,
        speaker=lambda request: ServiceIdentity("controller", request.controller_id),
        long_list="topics",
    )
    bulk_route(
        app,
        rpc.STOP_REPLICA_PATH,
        stop_replica,
        rpc.StopReplicaRequest,
        rpc.CommandResponse,
        name="stop_replica",
        summary="Stop or delete replicas of this broker",
        description=(
            "Sent by the controller (Replication V3, section C) after a topic deletion or a "
            "finished reassignment."
        ),
        errors=_COMMAND_ERRORS,
        speaker=lambda request: ServiceIdentity("controller", request.controller_id),
    )
    _add_metadata(app, commands, check)


def _add_metadata(
    app: ServiceApp, commands: Callable[[], ControllerCommands], check: ControllerCheck
) -> None:
    async def update_metadata(request: rpc.UpdateMetadataRequest) -> rpc.UpdateMetadataResponse:
        orders = commands()
        await check.admit(request)
        prepared = await orders.metadata.prepare(request)
        return orders.update_metadata(request, prepared)

    bulk_route(
        app,
        rpc.UPDATE_METADATA_PATH,
        update_metadata,
        rpc.UpdateMetadataRequest,
        rpc.UpdateMetadataResponse,
        name="update_metadata",
        summary="Update this broker's cluster metadata",
        description=(
            "Sent by the controller. The response has the version that the broker now serves. If "
            "a delta does not apply, it is the old one, and the controller sends the full "
            "metadata."
        ),
        errors=_COMMAND_ERRORS,
        speaker=lambda request: ServiceIdentity("controller", request.controller.id),
        long_list="topics",
    )


def add_replica_fetch(app: ServiceApp, sessions: Callable[[], FetchSessions]) -> None:
    """Add the route for followers."""

    async def replica_fetch(request: rpc.ReplicaFetchRequest) -> rpc.ReplicaFetchResponse:
        return await sessions().fetch(request)

    bulk_route(
        app,
        rpc.REPLICA_FETCH_PATH,
        replica_fetch,
        rpc.ReplicaFetchRequest,
        rpc.ReplicaFetchResponse,
        name="replica_fetch",
        summary="Fetch stored batches as a follower",
        description=(
            "Sent by followers (Replication V3, section G) for many partitions in a session, as "
            "MessagePack. The response has record batches, or the offset where the follower's "
            "log diverges."
        ),
        encoding="msgpack",
        errors=(FetchSessionUnknown, StaleIncarnation, BrokerFenced),
        speaker=lambda request: ServiceIdentity("broker", request.broker_id),
    )


def add_staged_copies(
    app: ServiceApp, copy_store: Callable[[], StagedCopyStore], max_body_bytes: int
) -> None:
    """Add the routes for leaders; an upload has at most `max_body_bytes`."""

    async def keep(request: copies.KeepStagedRequest) -> copies.StagedDone:
        return await copy_store().keep(request)

    async def drop(request: copies.DropStagedRequest) -> copies.StagedDone:
        return await copy_store().drop(request)

    async def read(request: copies.ReadStagedRequest) -> copies.StagedRecords:
        return await copy_store().read(request)

    bulk_route(
        app,
        copies.KEEP_STAGED_PATH,
        keep,
        copies.KeepStagedRequest,
        copies.StagedDone,
        name="keep_staged",
        summary="Store a copy of a staged upload",
        description=(
            "Sent by the leader that this broker's replica follows. The copy is on this broker's "
            "disk when the response is sent, so that this broker can publish it as a leader."
        ),
        encoding="msgpack",
        errors=[*_COPY_ERRORS, StagingFull, StorageFailed],
        max_body_bytes=max_body_bytes + _ENVELOPE_BYTES,
        speaker=_leader,
    )
    bulk_route(
        app,
        copies.DROP_STAGED_PATH,
        drop,
        copies.DropStagedRequest,
        copies.StagedDone,
        name="drop_staged_copies",
        summary="Delete copies of staged uploads",
        description=(
            "Sent by the leader once they are published or dropped. Missing copies are ignored."
        ),
        encoding="msgpack",
        errors=_COPY_ERRORS,
        speaker=_leader,
    )
    bulk_route(
        app,
        copies.READ_STAGED_PATH,
        read,
        copies.ReadStagedRequest,
        copies.StagedRecords,
        name="read_staged",
        summary="Read a copy of a staged upload",
        description="Sent by a leader that must publish the upload and lacks it.",
        encoding="msgpack",
        errors=[*_COPY_ERRORS, UnknownStaged, StorageFailed],
        changes_nothing=True,
        speaker=_leader,
    )


def add_routed(
    app: ServiceApp, requests: Callable[[], RoutedRequests], max_body_bytes: int
) -> None:
    """Add the routes for brokers that pass on what they do not lead."""

    async def append(request: routed.RoutedAppend) -> routed.RoutedAppended:
        return await requests().append(request)

    async def read(request: routed.RoutedRead) -> routed.RoutedData:
        return await requests().read(request)

    async def offsets(request: routed.RoutedOffsets) -> PartitionEnds:
        return await requests().offsets(request)

    bulk_route(
        app,
        routed.ROUTED_APPEND_PATH,
        append,
        routed.RoutedAppend,
        routed.RoutedAppended,
        name="routed_append",
        summary="Append records that another broker passes on",
        description=(
            "Sent by a broker that has checked its client's rights and quotas. The receiver "
            "appends the records as the leader, or refuses them; it never passes them on."
        ),
        encoding="msgpack",
        errors=[*_ROUTED_ERRORS, *_APPEND_ERRORS],
        max_body_bytes=max_body_bytes + _ENVELOPE_BYTES,
        speaker=_sender,
    )
    bulk_route(
        app,
        routed.ROUTED_READ_PATH,
        read,
        routed.RoutedRead,
        routed.RoutedData,
        name="routed_read",
        summary="Read records for another broker's client",
        description="Sent by a broker that has checked its client's rights and quotas.",
        encoding="msgpack",
        errors=[*_ROUTED_ERRORS, OffsetOutOfRange, LogTruncated, StorageFailed],
        changes_nothing=True,
        speaker=_sender,
    )
    bulk_route(
        app,
        routed.ROUTED_OFFSETS_PATH,
        offsets,
        routed.RoutedOffsets,
        PartitionEnds,
        name="routed_offsets",
        summary="Look up offsets for another broker's client",
        description="Sent by a broker that has checked its client's rights.",
        encoding="msgpack",
        errors=[*_ROUTED_ERRORS, OffsetNotAvailable],
        changes_nothing=True,
        speaker=_sender,
    )


def _sender(request: routed.RoutedRequest) -> ServiceIdentity:
    return ServiceIdentity("broker", request.sender)


def _leader(request: copies.StagedRequest) -> ServiceIdentity:
    return ServiceIdentity("broker", request.leader)
