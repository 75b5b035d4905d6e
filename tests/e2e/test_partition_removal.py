"""A partition is removed and one of its number added again while a replica is away."""

from __future__ import annotations

from typing import Any

import pytest

from leadline_client.errors import UnknownPartition
from leadline_client.wire import NewTopic
from tests.support.faults.faults import expired, kill
from tests.support.faults.load import Load
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.slow

PATH = f"/v1/topics/{TOPIC}/partitions"
LAST = 2


async def change(cluster: Cluster, method: str, **body: Any) -> Any:
    answer = await cluster.request(method, "controller-1", PATH, json=body, timeout=30)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def refusal_of(cluster: Cluster, broker: str, method: str) -> int:
    """Return the code with which a broker refuses to serve the last partition."""
    path = f"{PATH}/{LAST}/records"
    body: dict[str, Any] = {"json": {"records": [{"value": "late"}], "format": "string"}}
    if method == "GET":
        body = {"params": {"offset": 0}}
    answer = await cluster.request(method, broker, path, **body)
    code: int = answer.json().get("error_code", answer.status_code)
    return code


@pytest.mark.parametrize("away", ["leader", pytest.param("follower", marks=pytest.mark.soak)])
async def test_records_of_a_removed_partition_never_come_back(away: str) -> None:
    async with running_cluster() as cluster:
        async with loaded(cluster, NewTopic(TOPIC, LAST + 1, 3), label="old/") as old:
            victim = await (old.leader(LAST) if away == "leader" else old.follower(LAST))
            await old.load.progress(records=500)
            await old.load.stop()
            await kill(old, victim)
            await expired(old, victim)
        removed = await change(cluster, "DELETE", partitions=[LAST])
        assert removed["complete"]
        rest = [b.name for b in cluster.supervisor.layout.brokers if b.name != victim]
        for broker in rest:
            for method in ("POST", "GET"):
                assert await refusal_of(cluster, broker, method) == UnknownPartition.code
        with pytest.raises(UnknownPartition):
            await cluster.client.offsets(TOPIC, LAST)
        number = int(victim.rpartition("-")[2])
        others = [int(name.rpartition("-")[2]) for name in rest]
        # The one that was away would be the preferred leader, and has the longer log.
        assignment = {str(LAST): [number, *others]}
        await change(cluster, "POST", partitions=LAST + 1, replica_assignment=assignment)
        async with Load(cluster.bootstrap, TOPIC, LAST + 1, label="new/") as load:
            new = Scenario(cluster, load)
            await load.progress([LAST], records=300)
            cluster.restart(victim)
            await cluster.until_ready(victim)
            await new.full_isr()
            await cluster.client.elect("preferred", [(TOPIC, LAST)])
            await wait_until(lambda: _leads(cluster, number), "the one that was away leads")
            await load.progress([LAST], records=300)
            await load.stop()
            found = await cluster.client.fetch(TOPIC, LAST, 0, max_bytes=1 << 20)
            assert found.records
            assert all((r.value or b"").startswith(b"new/") for r in found.records)


async def _leads(cluster: Cluster, number: int) -> bool:
    row = (await cluster.client.describe(TOPIC)).partitions[LAST]
    return row.leader == number


async def test_the_load_on_other_partitions_notices_nothing() -> None:
    async with (
        running_cluster() as cluster,
        loaded(cluster, NewTopic(TOPIC, LAST, 3)) as running,
    ):
        for _ in range(3):
            await change(cluster, "POST", partitions=LAST + 2)
            await running.load.progress()
            await change(cluster, "DELETE", partitions=[LAST, LAST + 1])
            await running.load.progress()
        assert running.load.errors == {}
        await running.verify()
