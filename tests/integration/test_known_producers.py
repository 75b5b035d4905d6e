"""A broker to which a partition moves recognizes batches that retention has deleted before."""

from __future__ import annotations

from pathlib import Path

from leadline_client import batches
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until

TOPIC, PARTITION = "t", "/v1/topics/t/partitions/0"
RECORDS = f"{PARTITION}/records"
OCTETS = {"Content-Type": "application/octet-stream"}
FILLED = 8
SETTINGS = {
    "log.segment.bytes": "1024",
    "log.retention.bytes": "0",
    "log.retention.check.interval.ms": "100",
}


def batch(value: bytes, producer_id: int, sequence: int) -> bytes:
    return batches.encode(
        [OutgoingRecord(value)],
        now_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


async def test_defect_28_a_batch_is_not_appended_again_after_retention_and_a_move(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, settings=SETTINGS) as cluster:
        await cluster.client.create_topic(NewTopic(TOPIC, replica_assignment={0: (1, 2)}))
        identity = (await cluster.post("broker-1", "/v1/producer-ids")).json()["producer_id"]

        async def send(broker: str, value: bytes, sequence: int) -> dict[str, int]:
            data = batch(value, identity, sequence)
            answer = await cluster.post(broker, RECORDS, content=data, headers=OCTETS)
            assert answer.status_code == 200, answer.text
            found: dict[str, int] = answer.json()
            return found

        first = await send("broker-1", b"once", 0)
        for _ in range(FILLED):
            data = batches.encode([OutgoingRecord(b"x" * 700)], now_ms=1)
            filler = await cluster.post("broker-1", RECORDS, content=data, headers=OCTETS)
            assert filler.status_code == 200

        async def is_deleted() -> bool:
            rows = [await cluster.replicas(broker) for broker in ("broker-1", "broker-2")]
            return all(row["log_start_offset"] > 0 for (row,) in rows)

        await wait_until(is_deleted, "retention has deleted the batch")
        moved = {"topic": TOPIC, "partition": 0, "replicas": [3, 2]}
        task = await cluster.post("controller-1", "/v1/reassignments", json={"partitions": [moved]})
        assert task.status_code == 202, task.text

        async def leads() -> bool:
            return await cluster.leader_of(TOPIC, 0) == "broker-3"

        await wait_until(leads, "the new broker leads")

        again = await send("broker-3", b"once", 0)
        assert (again["base_offset"], again["duplicate"]) == (first["base_offset"], True)
        assert "duplicate" not in await send("broker-3", b"next", 1)
