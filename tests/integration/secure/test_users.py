"""Users of a secure cluster do what they were granted, with the tokens that they have."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from leadline_cli.commands.users import replace_part
from leadline_client import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    Client,
    NewTopic,
    Security,
)
from leadline_client.errors import Unauthorized
from tests.integration.secure.world import World, hello, knows, new_user
from tests.support.services.cluster import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_token_is_replaced_under_a_producer_and_a_group(
    world: World, tmp_path: Path
) -> None:
    users = f"{world.cluster.url('controller-1')}/v1/users"
    grants = [{"role": role} for role in ("operator", "producer", "consumer")]
    made = await world.http.post(users, json={"name": "rotating", "grants": grants})
    assert made.status_code == 201, made.text
    first, second = [
        (await world.http.post(f"{users}/rotating/tokens", json={})).json() for _ in range(2)
    ]
    file = tmp_path / "token"
    file.write_text(first["token"])
    for token in (first, second):
        await wait_until(partial(knows, world, token["token"], 200), "it is known")
    url = world.cluster.url("broker-1")
    ca_file = str(world.credentials.public_authority)
    async with AsyncClient(url, security=Security(ca_file, token_file=str(file))) as client:
        await client.create_topic(NewTopic("rotated", partitions=1))
        async with RotationLoad(client) as load:
            await load.until_carries_on()
            channel = load.channel
            # The file goes first: whoever is refused reads it again.
            file.write_text(second["token"])
            await world.http.delete(f"{users}/rotating/tokens/{first['id']}")
            await wait_until(lambda: knows(world, first["token"], 401), "it is revoked")
            await load.until_carries_on()
            await load.until_another_channel_than(channel)
            await load.end()
        await world.http.delete(f"{users}/rotating/tokens/{second['id']}")
        await wait_until(lambda: knows(world, second["token"], 401), "it is revoked, too")
        with pytest.raises(Unauthorized):
            await client.list_topics()


async def test_a_token_of_the_issuer_is_accepted_by_every_service_with_its_users_rights(
    world: World,
) -> None:
    users = f"{world.cluster.url('controller-1')}/v1/users"
    token = world.issuer.token("issued", "first")
    await wait_until(partial(knows, world, token, 403), "nobody has granted it anything")
    made = await world.http.post(users, json={"name": "issued", "grants": [{"role": "viewer"}]})
    assert made.status_code == 201, made.text
    await wait_until(partial(knows, world, token, 200), "it has its user's rights")
    world.issuer.add_ec("second")
    keys = world.issuer.key_set["keys"]
    nameless = {**keys[0], "kid": ["no", "name"]}
    world.issuer.answer = json.dumps({"keys": [nameless, *keys]}).encode()
    rotated = world.issuer.token("issued", "second", algorithm="ES256")
    await wait_until(partial(knows, world, rotated, 200), "the new key is read")
    topics = f"{world.cluster.url('broker-1')}/v1/topics"
    shown = {"Authorization": f"Bearer {rotated}"}
    refused = await world.http.post(topics, json={"name": "none"}, headers=shown)
    assert (refused.status_code, refused.json()["error_code"]) == (403, 40350)
    for bad in (world.issuer.token("issued", "first", aud="other"), f"{token}x"):
        assert await knows(world, bad, 401)
    assert (await world.http.delete(f"{users}/issued")).status_code == 200
    await wait_until(partial(knows, world, rotated, 403), "its user is gone")


class RotationLoad:
    """Produces record after record, and reads them in a group; any error of either is raised."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._acknowledged: list[bytes] = []
        self._read: list[bytes | None] = []
        self._ending = self._all_sent = False
        self._consumer = AsyncConsumer(client, "rotated")

    async def __aenter__(self) -> Self:
        """Start."""
        self._tasks = [asyncio.create_task(one) for one in (self._produce(), self._consume())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what still runs after a failure."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until_carries_on(self) -> None:
        """Wait until five more records were acknowledged and read."""
        known = len(self._acknowledged)

        async def carries_on() -> bool:
            self._raise_failures()
            return min(len(self._acknowledged), len(self._read)) >= known + 5

        await wait_until(carries_on, "records go in and out")

    @property
    def channel(self) -> object:
        """The open channel of the consumer, if there is one."""
        coordinator = self._consumer._coordinator
        return None if coordinator is None else coordinator.session._channel

    async def until_another_channel_than(self, former: object) -> None:
        """Wait until the consumer has opened a channel since, which shows the token of then."""

        async def is_open() -> bool:
            self._raise_failures()
            return self.channel not in (former, None)

        await wait_until(is_open, "another channel is open")

    async def end(self) -> None:
        """Stop producing; all that was acknowledged has been read then, once and in order."""
        producing, consuming = self._tasks
        self._ending = True
        await producing
        self._all_sent = True
        await consuming
        assert self._read == self._acknowledged

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def _produce(self) -> None:
        async with AsyncProducer(self._client) as producer:
            while not self._ending:
                value = b"%d" % len(self._acknowledged)
                await (await producer.send("rotated", value))
                self._acknowledged.append(value)

    async def _consume(self) -> None:
        consumer = self._consumer
        await consumer.subscribe(["rotated"])
        while not self._all_sent or len(self._read) < len(self._acknowledged):
            self._read += [one.record.value for one in await consumer.poll(timeout_s=0.2)]
        await consumer.aclose()


async def test_users_do_what_they_were_granted_and_nothing_else(world: World) -> None:
    controller, broker = world.cluster.url("controller-1"), world.cluster.url("broker-1")
    for topic in ("mine-1", "yours"):
        new = {"name": topic, "replica_assignment": {"0": [1, 2]}}
        (await world.http.post(f"{controller}/v1/topics", json=new)).raise_for_status()
    limits = {"topics": ["mine-*"], "groups": ["mine"]}
    grants = [{"role": role, **limits} for role in ("producer", "consumer")]
    user = {"name": "limited", "grants": grants}
    (await world.http.post(f"{broker}/v1/users", json=user)).raise_for_status()
    made = await world.http.post(f"{broker}/v1/users/limited/tokens", json={})
    token = made.json()["token"]
    await wait_until(partial(knows, world, token, 200), "every service knows the user")
    shown = {"Authorization": f"Bearer {token}", "X-Leadline-Principal": "user:admin"}

    async def status(method: str, path: str, body: object = None, url: str = broker) -> int:
        answer = await world.http.request(method, url + path, json=body, headers=shown)
        return answer.status_code

    records = {"records": [{"value": "v"}], "format": "string"}
    assert await status("POST", "/v1/topics/mine-1/partitions/0/records?acks=all", records) == 200
    assert await status("POST", "/v1/topics/yours/partitions/0/records", records) == 403
    assert await status("GET", "/v1/topics/yours/partitions/0/records?offset=0") == 403
    for url in (broker, controller, world.cluster.url("controller-2")):
        assert await status("GET", "/v1/topics/mine-1", url=url) == 200
        assert await status("GET", "/v1/topics/yours", url=url) == 403
        assert await status("POST", "/v1/topics", {"name": "mine-2"}, url) == 403
        assert await status("GET", "/v1/users", url=url) == 403
        seen = (await world.http.get(f"{url}/v1/metadata", headers=shown)).json()["topics"]
        assert list(seen) == ["mine-1"]
    question = {"partitions": [{"topic": "yours", "partition": 0}]}
    assert await status("POST", "/v1/offsets", question) == 403
    commit = {"offsets": [{"topic": "yours", "partition": 0, "offset": 0}]}
    for url in (broker, world.cluster.url("coordinator-1"), world.cluster.url("coordinator-2")):
        assert await status("POST", "/v1/groups/mine/offsets", commit, url) == 403
        assert await status("GET", "/v1/groups/other", url=url) == 403
    reset = {"to": "latest", "topics": ["yours"], "dry_run": True}
    assert await status("POST", "/v1/groups/mine/offsets/reset", reset) == 403
    foreign = {"offsets": [{"topic": "yours", "partition": 0, "offset": 0}]}
    path = f"{broker}/v1/groups/mine/offsets"
    (await world.http.post(path, json=foreign)).raise_for_status()
    for url in (path, f"{broker}/v1/groups/mine/lag"):
        assert "yours" in (await world.http.get(url)).text
        assert "yours" not in (await world.http.get(url, headers=shown)).text
    (await world.http.delete(path)).raise_for_status()
    assert await hello(world, shown, "mine", {"topics": ["mine-1"]}) == "welcome"
    assert await hello(world, shown, "mine", {"topics": ["yours"]}) == "error 40350"
    assert await hello(world, shown, "mine", {"pattern": ".*"}) == "error 40350"
    assert await hello(world, shown, "mine", {"pattern": "mine-.*"}) == "welcome"
    assert await hello(world, shown, "other", {"topics": ["mine-1"]}) == "status 403"
    assert await hello(world, {}, "mine", {"topics": ["mine-1"]}) == "status 401"
    entries = (await world.http.get(f"{controller}/v1/audit?kind=user_created")).json()
    assert "user:admin" in {one["actor"] for one in entries["entries"]}
    assert token not in json.dumps(entries)


@pytest.mark.parametrize("service", ["broker-1", "controller-1", "controller-2"])
@pytest.mark.parametrize("lost", ["user", "token"])
async def test_an_event_stream_ends_with_the_right_to_it(
    world: World, service: str, lost: str
) -> None:
    name = f"watching-{service}-{lost}"
    broker, users = world.cluster.url("broker-1"), f"{world.cluster.url(service)}/v1/users"
    user = {"name": name, "grants": [{"role": "viewer"}]}
    (await world.http.post(users, json=user)).raise_for_status()
    made = (await world.http.post(f"{users}/{name}/tokens", json={})).json()
    token = made["token"]
    await wait_until(partial(knows, world, token, 200), "every service knows the user")
    shown = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    url = f"{world.cluster.url(service)}/v1/events"
    async with world.http.stream("GET", url, headers=shown) as stream:
        lines = stream.aiter_lines()
        assert "following" in await anext(lines)
        what = f"{name}/tokens/{made['id']}" if lost == "token" else name
        (await world.http.delete(f"{users}/{what}")).raise_for_status()
        await wait_until(partial(knows, world, token, 401), "no service knows the token")
        new = {"name": f"unseen-{name}", "replica_assignment": {"0": [1, 2]}}
        (await world.http.post(f"{broker}/v1/topics", json=new)).raise_for_status()
        async with asyncio.timeout(60):
            assert not [line async for line in lines if "unseen" in line]


async def test_a_command_does_not_give_back_a_grant_that_was_taken_meanwhile(world: World) -> None:
    grants = [{"role": role, "topics": ["*"], "groups": ["*"]} for role in ("viewer", "admin")]
    user = {"name": "demoted", "grants": grants}
    users = f"{world.cluster.url('controller-2')}/v1/users"
    (await world.http.post(users, json=user)).raise_for_status()
    url, credentials = world.cluster.url("broker-1"), world.credentials
    security = Security(str(credentials.public_authority), token_file=str(credentials.admin_token))
    seen: list[list[str]] = []

    def grant_one_more() -> None:
        with Client(url, security=security) as client:

            def change(found: dict[str, Any]) -> dict[str, Any]:
                seen.append([one["role"] for one in found["grants"]])
                if len(seen) == 1:  # Another administrator takes the role of an administrator.
                    path = "/v1/users/demoted/grants"
                    client.administer("PUT", path, {"grants": grants[:1]})
                return {"grants": [*found["grants"], {"role": "producer", "topics": ["t"]}]}

            replace_part(client, "demoted", "grants", change)

    await asyncio.to_thread(grant_one_more)
    assert seen == [["viewer", "admin"], ["viewer"]]
    now = (await world.http.get(f"{users}/demoted")).json()
    assert [one["role"] for one in now["grants"]] == ["viewer", "producer"]


async def test_a_viewer_reads_the_load_of_each_broker_through_any(world: World) -> None:
    broker = world.cluster.url("broker-1")
    for role, status in (("viewer", 200), ("consumer", 403)):
        shown = await new_user(world, f"load-{role}", role)
        me = (await world.http.get(f"{broker}/v1/me", headers=shown)).json()
        assert ("read_broker_load" in me["operations"]) is (status == 200)
        for number in (1, 2):
            answer = await world.http.get(f"{broker}/v1/brokers/{number}/load", headers=shown)
            assert answer.status_code == status, answer.text
