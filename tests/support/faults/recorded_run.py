"""Records the audit of one eventful life of a real cluster, for the tests of the analytics.

`python -m tests.support.faults.recorded_run tests/spark/data/audit-fault-run.ndjson` takes two
minutes: four brokers and two controllers on this machine, under load. In order: brokers killed
and brought back, a follower frozen until it has left the ISR, preferred elections, a controlled
shutdown, the controller killed alone and right after a broker's failure was noticed, everybody in
sync lost and an unclean election, a throttled reassignment, a drain, and a partition that is
left without a leader at the end, with its brokers down. Written is what `GET /v1/audit/export`
then answers.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from leadline_common.audit_export import EXPORT_PATH, decode_line
from tests.support.faults.faults import expired, kill, kill_at_expiry_of, moved_away, out_of_isr
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster
from tests.support.services.cluster import wait_until

SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "1000",
    "auto.leader.rebalance.enable": "false",
    "failed.broker.interval.ms": "-1",
}
PAIR = "pair"
"""A topic of two replicas that needs both for acks=all."""
BULK = OutgoingRecord(b"." * 64 * 1024)
THROTTLE = 2 << 20


async def record() -> bytes:
    """Run everything, and return the audit."""
    async with (
        running_cluster(brokers=4, controllers=2, settings=SETTINGS) as cluster,
        loaded(cluster, NewTopic(TOPIC, replica_assignment=_assignment())) as running,
    ):
        pair = NewTopic(
            PAIR, replica_assignment={0: (1, 2), 1: (2, 1)}, configs={"min.insync.replicas": "2"}
        )
        await cluster.client.create_topic(pair)
        await running.full_isr()
        await _brokers_fail(running)
        await _a_follower_lags(running)
        await _controllers_fail(running)
        await _replicas_move(running)
        await _everybody_in_sync_is_lost(running)
        await _a_partition_stays_offline(running)
        await running.load.stop()
        answer = await cluster.get(await cluster.active_controller(), EXPORT_PATH)
        answer.raise_for_status()
        decoded = [decode_line(line) for line in answer.content.splitlines()]
        assert [entry.id for entry in decoded] == list(range(len(decoded)))
        return answer.content


def _assignment() -> dict[int, tuple[int, ...]]:
    return {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3, 2), 4: (2, 1, 3), 5: (3, 2, 1)}


async def _back(running: Scenario, *names: str) -> None:
    """Bring processes back, and wait until everything of the loaded topic is in sync."""
    for name in names:
        running.cluster.restart(name)
    for name in names:
        await running.cluster.until_ready(name)
    await running.full_isr()


async def _brokers_fail(running: Scenario) -> None:
    for name in ("broker-1", "broker-2"):
        led = await running.led_by(name)
        await kill(running, name)
        await moved_away(running, name, led)
        await _back(running, name)
    await running.cluster.client.elect("preferred")
    assert await running.cluster.terminate("broker-3") == 0
    await _back(running, "broker-3")
    await running.cluster.client.elect("preferred", [(TOPIC, 2)])


async def _a_follower_lags(running: Scenario) -> None:
    states = (await running.view()).states
    followed = [n for n in _assignment() if states[TOPIC, n][0].leader != 3]
    running.cluster.pause("broker-3")
    await out_of_isr(running, "broker-3", followed)
    running.cluster.resume("broker-3")
    await running.full_isr()


async def _controllers_fail(running: Scenario) -> None:
    first = await running.cluster.active_controller()
    await kill(running, first)
    second = await running.cluster.active_controller(not_in=[first])
    running.cluster.restart(first)
    await running.cluster.until_ready(first)
    await running.load.progress()
    await kill_at_expiry_of(running, "broker-1", second, 0.0)
    await running.cluster.active_controller(not_in=[second])
    await _back(running, "broker-1", second)


async def _replicas_move(running: Scenario) -> None:
    client = running.cluster.client
    for number in (0, 1):
        for _ in range(64):
            await client.produce(TOPIC, number, [BULK])
    rows = [
        {"topic": TOPIC, "partition": 0, "replicas": [4, 2, 3]},
        {"topic": TOPIC, "partition": 1, "replicas": [2, 3, 4]},
    ]
    body = {"partitions": rows, "throttle_bytes_per_s": THROTTLE}
    task = await client.administer("POST", "/v1/reassignments", body)
    await _task_is_over(running, task["id"])
    task = await client.administer("POST", "/v1/brokers/4/drain", {})
    await _task_is_over(running, task["id"])
    assert await running.cluster.terminate("broker-4") == 0
    await _back(running, "broker-4")


async def _task_is_over(running: Scenario, task_id: str) -> None:
    async def over() -> bool:
        task = await running.cluster.client.administer("GET", f"/v1/tasks/{task_id}")
        assert task["state"] not in ("failed", "cancelled"), task
        return bool(task["state"] == "done")

    await wait_until(over, f"task {task_id} is done", 90)


async def _everybody_in_sync_is_lost(running: Scenario) -> None:
    await kill(running, "broker-2")
    await expired(running, "broker-2")
    await kill(running, "broker-1")
    await expired(running, "broker-1")
    running.cluster.restart("broker-2")
    await running.cluster.until_ready("broker-2")
    await running.cluster.client.elect("unclean", [(PAIR, 0)])
    await _led_by(running, PAIR, 0, 2)
    await _back(running, "broker-1")
    await running.cluster.in_sync(PAIR, 2)
    await running.cluster.client.elect("preferred")


async def _a_partition_stays_offline(running: Scenario) -> None:
    for name in ("broker-1", "broker-2"):
        await kill(running, name)
        await expired(running, name)
    await _led_by(running, PAIR, 1, -1)


async def _led_by(running: Scenario, topic: str, number: int, leader: int) -> None:
    async def led() -> bool:
        return (await running.view()).states[topic, number][0].leader == leader

    await wait_until(led, f"{topic}-{number} is led by {leader}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path)
    target: Path = parser.parse_args().target
    target.write_bytes(asyncio.run(record()))
