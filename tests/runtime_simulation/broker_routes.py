"""What a simulated broker serves to other services, and to clients without HTTP."""

from __future__ import annotations

from collections.abc import Callable

from leadline_broker.runtime.broker import Broker
from leadline_client.wire import ProduceResult
from leadline_common import rpc, staged_copies
from leadline_common.bulk_offsets import PartitionEnds
from leadline_common.routed_records import (
    ROUTED_OFFSETS_PATH,
    ROUTED_READ_PATH,
    RoutedData,
    RoutedOffsets,
    RoutedRead,
)
from tests.runtime_simulation.messages import (
    FETCH_PATH,
    PRODUCE_PATH,
    PRODUCER_ID_PATH,
    PUBLISH_PATH,
    STAGE_PATH,
    Fetch,
    Fetched,
    NewProducerId,
    Produce,
    Produced,
    ProducerId,
    Publish,
    Published,
    Stage,
    Staged,
)
from tests.runtime_simulation.network import Routes


def broker_routes(broker: Broker, as_leader: Callable[[str], None]) -> Routes:
    """Return the routes of a broker; it calls `as_leader` with what it answers as one."""
    routes, check = Routes(), broker.controller_check

    async def leader_and_isr(request: rpc.LeaderAndIsrRequest) -> rpc.CommandResponse:
        commands = broker.engine.commands
        await check.admit(request)
        return await commands.leader_and_isr(request)

    async def stop_replica(request: rpc.StopReplicaRequest) -> rpc.CommandResponse:
        commands = broker.engine.commands
        await check.admit(request)
        return await commands.stop_replica(request)

    async def update_metadata(request: rpc.UpdateMetadataRequest) -> rpc.UpdateMetadataResponse:
        commands = broker.engine.commands
        await check.admit(request)
        prepared = await commands.metadata.prepare(request)
        return commands.update_metadata(request, prepared)

    async def replica_fetch(request: rpc.ReplicaFetchRequest) -> rpc.ReplicaFetchResponse:
        return await broker.engine.sessions.fetch(request)

    async def produce(request: Produce) -> Produced:
        result: ProduceResult = await broker.engine.serving.produce(
            request.topic,
            request.partition,
            bytearray(request.batch),
            acks="all",
            timeout_ms=request.timeout_ms,
            leader_epoch=request.leader_epoch,
            topic_id=request.topic_id,
        )
        as_leader(f"{request.topic}-{request.partition} acknowledged")
        return Produced(result.base_offset, result.leader_epoch, duplicate=result.duplicate)

    async def producer_id(request: NewProducerId) -> ProducerId:
        del request
        identity, _ = await broker.engine.producer_ids.allocate()
        return ProducerId(identity)

    async def fetch(request: Fetch) -> Fetched:
        found = await broker.engine.serving.fetch(
            request.topic,
            request.partition,
            request.offset,
            max_bytes=1 << 16,
            min_bytes=1,
            wait_ms=request.wait_ms,
            last_epoch=request.last_epoch,
        )
        as_leader(f"{request.topic}-{request.partition} read")
        return Fetched(found.records, found.next_offset, found.topic_id)

    routes.add(FETCH_PATH, Fetch, fetch)
    routes.add(PRODUCER_ID_PATH, NewProducerId, producer_id)
    routes.add(rpc.LEADER_AND_ISR_PATH, rpc.LeaderAndIsrRequest, leader_and_isr)
    routes.add(rpc.STOP_REPLICA_PATH, rpc.StopReplicaRequest, stop_replica)
    routes.add(rpc.UPDATE_METADATA_PATH, rpc.UpdateMetadataRequest, update_metadata)
    routes.add(rpc.REPLICA_FETCH_PATH, rpc.ReplicaFetchRequest, replica_fetch)
    routes.add(PRODUCE_PATH, Produce, produce)
    _add_routed(routes, broker, as_leader)
    _add_publishing(routes, broker, as_leader)
    _add_staged_copies(routes, broker)
    return routes


def _add_routed(routes: Routes, broker: Broker, as_leader: Callable[[str], None]) -> None:
    """Add what brokers ask leaders for polls of consumers that they serve."""

    async def read(request: RoutedRead) -> RoutedData:
        answer = await broker.engine.routed_requests.read(request)
        as_leader(f"{request.topic}-{request.partition} read for another broker")
        return answer

    async def offsets(request: RoutedOffsets) -> PartitionEnds:
        return await broker.engine.routed_requests.offsets(request)

    routes.add(ROUTED_READ_PATH, RoutedRead, read)
    routes.add(ROUTED_OFFSETS_PATH, RoutedOffsets, offsets)


def _add_publishing(routes: Routes, broker: Broker, as_leader: Callable[[str], None]) -> None:
    """Add what applications ask leaders for."""

    async def stage(request: Stage) -> Staged:
        data = bytearray(request.batches)
        found = await broker.engine.staging.stage(request.topic, request.partition, data)
        return Staged(found.staged_id)

    async def publish(request: Publish) -> Published:
        found = await broker.engine.publishing.publish(
            request.topic,
            request.partition,
            request.app,
            request.batch,
            request.staged,
            request.timeout_ms,
        )
        as_leader(f"{request.topic}-{request.partition} published")
        return Published(found.base_offset, found.last_offset, duplicate=found.duplicate)

    routes.add(STAGE_PATH, Stage, stage)
    routes.add(PUBLISH_PATH, Publish, publish)


def _add_staged_copies(routes: Routes, broker: Broker) -> None:
    """Add what leaders ask their followers for."""

    async def keep(request: staged_copies.KeepStagedRequest) -> staged_copies.StagedDone:
        return await broker.engine.copy_store.keep(request)

    async def drop(request: staged_copies.DropStagedRequest) -> staged_copies.StagedDone:
        return await broker.engine.copy_store.drop(request)

    async def read(request: staged_copies.ReadStagedRequest) -> staged_copies.StagedRecords:
        return await broker.engine.copy_store.read(request)

    routes.add(staged_copies.KEEP_STAGED_PATH, staged_copies.KeepStagedRequest, keep)
    routes.add(staged_copies.DROP_STAGED_PATH, staged_copies.DropStagedRequest, drop)
    routes.add(staged_copies.READ_STAGED_PATH, staged_copies.ReadStagedRequest, read)
