"""What controllers and followers say to a broker: bulk RPC, documented like the rest."""

from __future__ import annotations

from leadline_broker.runtime.broker import Broker
from leadline_client.errors import (
    BrokerFenced,
    FetchSessionUnknown,
    StaleControllerEpoch,
    StaleIncarnation,
    StorageFailed,
)
from leadline_common import rpc
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_route


def add_internal_routes(app: ServiceApp, broker: Broker) -> None:
    """Add the routes for controllers and followers."""
    _add_commands(app, broker)
    _add_fetch(app, broker)


def _add_commands(app: ServiceApp, broker: Broker) -> None:
    async def leader_and_isr(request: rpc.LeaderAndIsrRequest) -> rpc.CommandResponse:
        return broker.leader_and_isr(request)

    async def stop_replica(request: rpc.StopReplicaRequest) -> rpc.CommandResponse:
        return broker.stop_replica(request)

    async def update_metadata(request: rpc.UpdateMetadataRequest) -> rpc.UpdateMetadataResponse:
        return broker.update_metadata(request)

    refusals = (StaleControllerEpoch, StaleIncarnation, StorageFailed)
    bulk_route(
        app,
        rpc.LEADER_AND_ISR_PATH,
        leader_and_isr,
        rpc.LeaderAndIsrRequest,
        rpc.CommandResponse,
        name="leader_and_isr",
        summary="Grant roles to this broker's replicas",
        description=(
            "From the controller (seed 1 C). With `is_init` the request is the broker's full "
            "grant. The answer holds one code for each partition, 0 for success."
        ),
        errors=refusals,
    )
    bulk_route(
        app,
        rpc.STOP_REPLICA_PATH,
        stop_replica,
        rpc.StopReplicaRequest,
        rpc.CommandResponse,
        name="stop_replica",
        summary="Stop replicas of this broker, and delete them if told to",
        description="From the controller (seed 1 C), after a tombstone or a finished move.",
        errors=refusals,
    )
    bulk_route(
        app,
        rpc.UPDATE_METADATA_PATH,
        update_metadata,
        rpc.UpdateMetadataRequest,
        rpc.UpdateMetadataResponse,
        name="update_metadata",
        summary="Tell this broker who leads what",
        description=(
            "From the controller. The answer holds the version that the broker now serves; when "
            "a delta did not fit, that is the old one, and the controller sends all of it."
        ),
        errors=refusals,
    )


def _add_fetch(app: ServiceApp, broker: Broker) -> None:
    bulk_route(
        app,
        rpc.REPLICA_FETCH_PATH,
        broker.replica_fetch,
        rpc.ReplicaFetchRequest,
        rpc.ReplicaFetchResponse,
        name="replica_fetch",
        summary="Fetch stored batches as a follower",
        description=(
            "From followers (seed 1 G), as MessagePack, for many partitions within a session. "
            "The answer has record batches, or where the follower's log diverges."
        ),
        encoding="msgpack",
        errors=(FetchSessionUnknown, StaleIncarnation, BrokerFenced),
    )
