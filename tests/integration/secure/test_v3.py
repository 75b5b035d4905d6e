"""The v3 API of a secure cluster: who may do what, and what brokers ask each other for it."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest

from tests.integration.secure.world import World
from tests.support.services.cluster import wait_until
from tests.support.v3.types import problems_of

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def header_of(world: World, name: str, *grants: dict[str, Any]) -> dict[str, str]:
    """Return the header of a new user with these grants."""
    users = world.cluster.url("broker-1") + "/v1/users"
    (await world.http.post(users, json={"name": name, "grants": grants})).raise_for_status()
    made = await world.http.post(f"{users}/{name}/tokens", json={})
    shown = {"Authorization": f"Bearer {made.raise_for_status().json()['token']}"}
    await wait_until(partial(is_known, world, shown), "brokers and controllers know the user")
    return shown


async def is_known(world: World, shown: dict[str, str]) -> bool:
    services = [one for one in world.services if one.kind != "coordinator"]
    urls = [f"{world.url(one)}/v1/brokers" for one in services]
    return all([(await world.http.get(url, headers=shown)).is_success for url in urls])


async def ask(
    world: World, method: str, path: str, broker: int = 1, **options: Any
) -> httpx.Response:
    base = f"{world.cluster.url(f'broker-{broker}')}/v3/clusters/{world.cluster.file.cluster_id}"
    return await world.http.request(method, base + path, **options)


def refused(answer: httpx.Response, status: int, code: int) -> bool:
    """Tell whether an answer is this error, in the format of the API."""
    assert problems_of(answer.json(), "Error", "") == []
    return (answer.status_code, answer.json()["error_code"]) == (status, code)


async def test_who_is_not_known_gets_40101_on_every_path(world: World) -> None:
    wrong = {"Authorization": "Bearer no.token"}
    for path in ("/topics", "/topics/t", "/nothing"):
        assert refused(await ask(world, "GET", path, headers=wrong), 401, 40101)
    answer = await ask(world, "POST", "/topics/t/records", headers=wrong, json={})
    assert refused(answer, 401, 40101)


async def test_users_do_through_it_what_their_grants_allow(world: World) -> None:
    granted = {"role": "producer", "topics": ["t", "v3-own-*"], "groups": []}
    shown = await header_of(world, "v3-producer", granted)
    secret = {"topic_name": "secret", "partitions_count": 1, "replication_factor": 1}
    assert (await ask(world, "POST", "/topics", json=secret)).status_code == 201
    topics = (await ask(world, "GET", "/topics", headers=shown)).json()["data"]
    assert [one["topic_name"] for one in topics] == ["t"]
    configs = (await ask(world, "GET", "/topics/-/configs", headers=shown)).json()["data"]
    assert {one["topic_name"] for one in configs} == {"t"}
    shown_topic = await ask(
        world, "GET", "/topics/t?include_authorized_operations=true", headers=shown
    )
    allowed = ["DESCRIBE", "DESCRIBE_CONFIGS", "WRITE"]
    assert shown_topic.json()["authorized_operations"] == allowed
    for method, path, body in (
        ("GET", "/topics/secret", None),
        ("POST", "/topics/secret/records", {}),
        ("DELETE", "/topics/t", None),
        ("POST", "/topics", {"topic_name": "v3-own-1"}),
        ("PATCH", "/topics/t", {"partitions_count": 9}),
        ("PUT", "/topics/t/configs/retention.ms", {"value": "1"}),
        ("GET", "/topics/t/partitions/-/replica-status", None),
        ("GET", "/brokers/1/configs", None),
        ("GET", "/consumer-groups/g", None),
        ("DELETE", "/brokers/2", None),
        ("GET", "/acls", None),
    ):
        assert refused(await ask(world, method, path, json=body, headers=shown), 403, 40301), path
    assert (await ask(world, "DELETE", "/topics/secret")).status_code == 204


async def test_an_operator_of_some_topics_creates_only_those(world: World) -> None:
    granted = {"role": "operator", "topics": ["own-*"], "groups": []}
    shown = await header_of(world, "v3-operator", granted)
    own = {"topic_name": "own-1", "partitions_count": 1, "replication_factor": 1}
    assert refused(
        await ask(world, "POST", "/topics", json=own | {"topic_name": "x"}, headers=shown),
        403,
        40301,
    )
    assert (await ask(world, "POST", "/topics", json=own, headers=shown)).status_code == 201
    retention = {"data": [{"name": "retention.ms", "value": "1"}]}
    changes = [{"topic_name": one, "configs": retention["data"]} for one in ("own-1", "t")]
    many = await ask(
        world, "POST", "/topics/-/configs:alter", json={"data": changes}, headers=shown
    )
    assert refused(many, 403, 40301)
    assert (await ask(world, "DELETE", "/topics/own-1", headers=shown)).status_code == 204


async def test_brokers_pass_records_on_and_ask_each_other_with_their_certificates(
    world: World,
) -> None:
    for broker in (1, 2):
        for partition in (0, 1):
            record = {"partition_id": partition, "value": {"type": "STRING", "data": "v"}}
            done = await ask(world, "POST", "/topics/t/records", broker, json=record)
            assert done.status_code == 200, done.text
            path = f"/topics/t/partitions/{partition}/offset"
            found = (await ask(world, "GET", path, broker)).json()
            assert found["latest_offset"] == done.json()["offset"] + 1
        status = await ask(world, "GET", "/topics/-/partitions/-/replica-status", broker)
        rows = [one for one in status.json()["data"] if one["topic_name"] == "t"]
        assert len(rows) == 4
        assert all(one["log_end_offset"] > 0 for one in rows)
        assert all(link.startswith("https://") for link in links_of(status.json()))


def links_of(body: dict[str, Any]) -> list[str]:
    return [one["metadata"]["self"] for one in (body, *body["data"])]
