"""What a controller answers while ZooKeeper is down: nothing was begun, and that is certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import httpx

from leadline_client.errors import NoController
from tests.support.services.cluster import CALM, Cluster, wait_until

REQUESTS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("POST", "/v1/topics", {"json": {"name": "new", "partitions": 2}}),
    ("POST", "/v1/topics/old/partitions", {"json": {"partitions": 3}}),
    ("DELETE", "/v1/topics/old", {}),
    ("PATCH", "/v1/configs", {"json": {"set": {"healing.enable": "false"}}}),
    ("POST", "/v1/users", {"json": {"name": "new"}}),
)


async def test_requests_that_cannot_begin_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """ZooKeeper's disk was full, and every command said that its outcome was unknown."""
    async with Cluster(tmp_path, brokers=1, settings=CALM) as cluster:
        old = await cluster.post("controller-1", "/v1/topics", json={"name": "old"})
        assert old.status_code == httpx.codes.CREATED, old.text
        await cluster.kill("zookeeper-1")

        async def is_without() -> bool:
            return (await cluster.get("controller-1", "/readyz")).status_code != httpx.codes.OK

        await wait_until(is_without, "the controller has no connection")
        for method, path, arguments in REQUESTS:
            answer = await cluster.request(method, "controller-1", path, **arguments)
            found = answer.json()
            assert found["error_code"] == NoController.code, (path, found)
            assert (found["outcome"], found["retriable"]) == ("refused", True)
        cluster.restart("zookeeper-1")
        await cluster.until_ready("controller-1")
        topics = (await cluster.get("controller-1", "/v1/metadata")).json()["topics"]
        assert {name: len(topic["partitions"]) for name, topic in topics.items()} == {"old": 1}
