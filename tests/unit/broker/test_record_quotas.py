"""Quotas of bytes and requests at a broker that replicates for real, with a clock of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from leadline_broker.api.app import build_app
from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import Authentication
from leadline_common.metrics import Metrics
from leadline_common.quotas.limits import Limits
from tests.support.services.zookeeper import until
from tests.unit.broker.small_cluster import CLUSTER, TOPIC, SmallCluster, batch, three

RECORDS = f"/v1/topics/{TOPIC}/partitions/0/records"
STAGED = f"/v1/topics/{TOPIC}/partitions/0/staged"
OCTETS = "application/octet-stream"
TOKENS = {
    name: new_token(bytes([number]) * RANDOM_BYTES) for number, name in enumerate(["ada", "ben"])
}
BATCH = bytes(batch("x" * 1_000))
UNIT = len(BATCH) // 10 + 1
"""A quota per second whose burst is one batch and a little."""


@dataclass
class World:
    """A leader with two followers, its users, and the time of its quotas in ms."""

    cluster: SmallCluster
    http: httpx.AsyncClient
    now: int = 0
    limits: dict[str, Limits] = field(default_factory=dict)

    def users(self) -> Users:
        return Users.of(
            {
                name: User(
                    (Grant.of_all(Role.ADMIN),),
                    (KeptToken(token.id, hash_of(token), 0),),
                    quotas=self.limits.get(name, Limits()),
                )
                for name, token in TOKENS.items()
            }
        )

    async def ask(
        self, method: str, path: str, name: str = "ada", content: Any = None
    ) -> httpx.Response:
        shown = {"Authorization": f"Bearer {TOKENS[name]}", "Accept": OCTETS}
        if method == "POST":
            shown["Content-Type"] = OCTETS
        return await self.http.request(method, path, headers=shown, content=content)

    async def produce(self, name: str = "ada", path: str = RECORDS) -> httpx.Response:
        return await self.ask("POST", path, name, content=BATCH)

    async def fetch(self, name: str = "ada") -> httpx.Response:
        return await self.ask("GET", f"{RECORDS}?offset=0", name)

    async def end(self) -> int:
        answer = await self.ask("GET", f"/v1/topics/{TOPIC}/partitions/0/offsets", "ben")
        return int(answer.json()["log_end_offset"])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with await three(tmp_path) as cluster:
        app = build_app(cluster.brokers[1], request_max_bytes=1 << 20, metrics=Metrics())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
            found = World(cluster, http)
            app.authentication = Authentication(required=True, users=found.users)
            app.quotas.users = found.users
            app.quotas.monotonic_ms = lambda: found.now
            yield found


def code_of(answer: httpx.Response) -> int:
    return int(answer.json()["error_code"])


@pytest.mark.parametrize("path", [RECORDS, STAGED])
async def test_a_producer_over_its_quota_is_refused_and_nothing_is_appended(
    world: World, path: str
) -> None:
    world.limits["ada"] = Limits(produce_bytes_per_s=UNIT)
    assert (await world.produce()).status_code == 200
    assert (await world.produce(path=path)).is_success, "what is left of a burst admits one more"
    end = await world.end()
    refused = await world.produce(path=path)
    assert (refused.status_code, code_of(refused)) == (429, 42950)
    assert refused.headers["retry-after"] == "10"
    assert 9 < refused.json()["retry_after_s"] <= 10
    assert await world.end() == end
    assert (await world.produce("ben", path)).is_success, "another user has a quota of its own"
    assert (await world.fetch()).status_code == 200, "and reading is another quota"
    world.now += 10_000
    assert (await world.produce(path=path)).is_success


async def test_many_requests_at_once_do_not_pass_together(world: World) -> None:
    world.limits["ada"] = Limits(produce_bytes_per_s=UNIT)
    begun: list[int] = []
    go = asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        begun.append(1)
        await go.wait()
        yield BATCH

    sending = asyncio.gather(*(world.ask("POST", RECORDS, content=slow_body()) for _ in range(20)))
    await until(lambda: len(begun) == 20, "all wait for their bodies")
    go.set()
    sent = await sending
    assert sorted(one.status_code for one in sent) == [200] * 2 + [429] * 18
    assert await world.end() == 2


async def test_a_body_of_a_producer_in_debt_is_not_read(world: World) -> None:
    world.limits["ada"] = Limits(produce_bytes_per_s=1)
    assert (await world.produce()).status_code == 200
    read = []

    async def body() -> AsyncIterator[bytes]:
        read.append(1)
        yield BATCH

    assert (await world.ask("POST", RECORDS, content=body())).status_code == 429
    assert not read


async def test_a_reader_gets_what_it_asked_for_and_then_waits(world: World) -> None:
    world.limits["ada"] = Limits(fetch_bytes_per_s=UNIT)
    for _ in range(3):
        await world.produce("ben")
    first = await world.fetch()
    assert (first.status_code, len(first.content)) == (200, 3 * len(BATCH))
    refused = await world.fetch()
    assert (refused.status_code, code_of(refused)) == (429, 42950)
    assert refused.headers["retry-after"] == "20"
    for path in ("/v1/brokers", RECORDS):
        assert (await world.ask("GET", path)).status_code != 429
    assert (await world.fetch("ben")).status_code == 200
    world.now += 20_000
    assert (await world.fetch()).status_code == 200


async def test_json_counts_as_it_is_sent(world: World) -> None:
    world.limits["ada"] = Limits(fetch_bytes_per_s=UNIT)
    await world.produce("ben")
    shown = {"Authorization": f"Bearer {TOKENS['ada']}"}
    answer = await world.http.get(f"{RECORDS}?offset=0", headers=shown)
    used = f'{{quota="fetch_bytes_per_s",user="ada"}} {len(answer.content)}'
    assert f"leadline_quota_used_total{used}" in (await world.ask("GET", "/metrics", "ben")).text


async def test_requests_of_a_user_are_limited_whatever_they_ask_for(world: World) -> None:
    world.limits["ada"] = Limits(requests_per_s=1)
    paths = ["/v1/brokers/1", "/no-such-path", f"{RECORDS}?offset=0", "/docs"]
    for number in range(10):
        assert (await world.ask("GET", paths[number % 4])).status_code != 429
    for method, path in (("GET", paths[1]), ("POST", RECORDS), ("OPTIONS", RECORDS)):
        refused = await world.ask(method, path)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    for path in ("/healthz", "/readyz"):
        assert (await world.ask("GET", path)).status_code != 429, "probes are not limited"
    assert (await world.ask("GET", "/v1/brokers/1", "ben")).status_code != 429
    strangers = [(await world.http.get("/v1/load")).status_code for _ in range(12)]
    assert set(strangers) == {401}, "nobody pays for strangers"


async def test_the_default_of_the_settings_changes_while_the_broker_runs(world: World) -> None:
    broker = world.cluster.brokers[1]
    world.cluster.nodes.configure(CLUSTER, quota_produce_bytes_per_s=UNIT)
    await until(lambda: broker.settings.quota_produce_bytes_per_s == UNIT, "the setting is known")
    answers = [(await world.produce()).status_code for _ in range(3)]
    assert answers == [200, 200, 429]
    world.limits["ada"] = Limits(produce_bytes_per_s=0)
    assert (await world.produce()).status_code == 200, "a user without a quota"


async def test_the_other_defaults_change_while_the_broker_runs_too(world: World) -> None:
    broker = world.cluster.brokers[1]
    await world.produce()
    assert [(await world.fetch()).status_code for _ in range(3)] == [200] * 3
    world.cluster.nodes.configure(CLUSTER, quota_fetch_bytes_per_s=1)
    await until(lambda: broker.settings.quota_fetch_bytes_per_s == 1, "the setting is known")
    assert [(await world.fetch()).status_code for _ in range(2)] == [200, 429]
    world.cluster.nodes.configure(CLUSTER, quota_requests_per_s=1)
    await until(lambda: broker.settings.quota_requests_per_s == 1, "the setting is known")
    answers = [(await world.ask("GET", "/v1/brokers/1")).status_code for _ in range(11)]
    assert answers[0] != answers[-1] == 429


async def test_replication_goes_on_whatever_the_producers_may_do(world: World) -> None:
    world.cluster.nodes.configure(
        CLUSTER, quota_produce_bytes_per_s=1, quota_fetch_bytes_per_s=1, quota_requests_per_s=1
    )
    broker = world.cluster.brokers[1]
    await until(lambda: broker.settings.quota_requests_per_s == 1, "the settings are known")
    params = "?acks=all"
    for name in TOKENS:
        assert (await world.produce(name, RECORDS + params)).status_code == 200
        assert (await world.produce(name, RECORDS + params)).status_code == 429
    await until(lambda: len(world.cluster.stored(2)) == len(world.cluster.stored(1)), "replicated")


async def test_without_authentication_each_address_has_the_default(tmp_path: Path) -> None:
    async with await three(tmp_path) as cluster:
        broker = cluster.brokers[1]
        cluster.nodes.configure(CLUSTER, quota_produce_bytes_per_s=1, quota_requests_per_s=1)
        await until(lambda: broker.settings.quota_requests_per_s == 1, "the settings are known")
        app = build_app(broker, request_max_bytes=1 << 20, metrics=Metrics())

        async def answers(address: str, asked: int) -> list[int]:
            transport = httpx.ASGITransport(app, client=(address, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
                shown = {"Content-Type": OCTETS}
                sent = [await http.post(RECORDS, content=BATCH, headers=shown) for _ in range(2)]
                found = [one.status_code for one in sent]
                return found + [(await http.get("/v1/brokers")).status_code for _ in range(asked)]

        for address in ("10.0.0.1", "10.0.0.2"):
            found = await answers(address, 12)
            assert found[:2] == [200, 429]
            assert 429 not in found[2:], "services look like clients here, and ask, too"
