"""A producer id belongs to the user to whom it was allocated, at every leader."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from leadline_client import AsyncClient, OutgoingRecord, Security
from leadline_client.batches import encode
from leadline_client.errors import ForeignProducerId
from leadline_client.payloads import ProducerIdentity
from tests.integration.secure.world import World, new_user
from tests.support.services.cluster import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="package")

TOPIC = "owned"


@asynccontextmanager
async def client_of(world: World, directory: Path, name: str) -> AsyncIterator[AsyncClient]:
    """Make a user who may produce and read, and connect as it."""
    shown = await new_user(world, name, "producer", "consumer")
    file = directory / f"{name}.token"
    file.write_text(shown["Authorization"].removeprefix("Bearer "))
    security = Security(str(world.credentials.public_authority), token_file=str(file))
    async with AsyncClient(world.cluster.url("broker-1"), security=security) as client:
        yield client


async def produce(
    client: AsyncClient, partition: int, known: ProducerIdentity, sequence: int, value: str
) -> int:
    """Send one idempotent batch, and return its offset."""
    batch = encode(
        [OutgoingRecord(value.encode())],
        now_ms=time.time_ns() // 1_000_000,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        base_sequence=sequence,
    )
    return (await client.produce_batches(TOPIC, partition, batch)).base_offset


async def is_led(client: AsyncClient) -> bool:
    return [row.leader for row in (await client.describe(TOPIC)).partitions] == [1, 2]


async def test_nobody_else_produces_with_it(world: World, tmp_path: Path) -> None:
    assignment = {0: (1, 2), 1: (2, 1)}
    async with (
        client_of(world, tmp_path, "ann") as ann,
        client_of(world, tmp_path, "bob") as bob,
    ):
        url = world.cluster.url("controller-1")
        topic = {"name": TOPIC, "replica_assignment": {str(p): r for p, r in assignment.items()}}
        (await world.http.post(f"{url}/v1/topics", json=topic)).raise_for_status()
        await wait_until(partial(is_led, ann), "both partitions have their leaders")
        known = await ann.new_producer_id()
        later = ProducerIdentity(known.producer_id, known.producer_epoch + 1)
        for partition in assignment:  # one is led by each broker
            assert await produce(ann, partition, known, 0, "first") == 0
            for stolen, sequence in ((known, 0), (known, 1), (later, 0)):
                with pytest.raises(ForeignProducerId, match="user:bob"):
                    await produce(bob, partition, stolen, sequence, "forged")
            assert await produce(ann, partition, known, 1, "second") == 1
            fetched = await bob.fetch(TOPIC, partition, 0)
            assert [record.value for record in fetched.records] == [b"first", b"second"]
        own = await bob.new_producer_id()
        assert await produce(bob, 0, own, 0, "own") == 2
