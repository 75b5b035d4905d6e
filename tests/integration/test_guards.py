"""If-Match and Idempotency-Key: no change of another is undone, and nothing is done twice."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from leadline_client.errors import NoController
from leadline_client.wire import NewTopic
from leadline_common import znodes
from leadline_common.clock import SystemClock
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_controller.domain.idempotency import decode_record
from leadline_controller.runtime import idempotency
from leadline_controller.runtime.engine.guard import Guard, Mark, guard_scope
from leadline_controller.runtime.idempotency import IdempotencyManager, TakeKey
from leadline_controller.runtime.topics.topics import CreateTopic
from tests.integration.test_controller_spine import audit
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import MortalStore, RunningController
from tests.support.services.zookeeper import until

KEY = {"Idempotency-Key": "order-17"}
NEW = {"name": "orders", "partitions": 2, "replication_factor": 1}


async def post(controller: RunningController, body: Any = NEW, **headers: str) -> httpx.Response:
    """Create a topic under the key."""
    return await controller.http.post("/v1/topics", json=body, headers=KEY | headers)


async def made(zk: ZkSession) -> list[str]:
    """Return the topics that were ever created through the API, in order."""
    return [e.resource["topic"] for e in await audit(zk) if e.kind == "topic_created"]


async def state(zk: ZkSession) -> str:
    """Return what is remembered of the key."""
    data, _ = await zk.get(idempotency.record_path(KEY["Idempotency-Key"]))
    return decode_record(data).state


def code(answer: httpx.Response) -> tuple[int, str]:
    """Return the code and the outcome of a refusal."""
    body = answer.json()
    return body["error_code"], body["outcome"]


async def test_a_request_is_handled_once_and_answered_the_same(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1)
    standby = await rig.controller()
    await until(lambda: standby.service.active is not None, "the standby knows the active one")
    first = await post(controller)
    assert first.status_code == 201, first.text
    assert "idempotency-replayed" not in first.headers
    reordered = dict(reversed(NEW.items()))
    for door, body in ((controller, NEW), (controller, reordered), (standby, NEW)):
        again = await post(door, body)
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["content-type"] == "application/json"
    assert await made(zk_session) == ["orders"]


async def test_a_key_of_another_request_is_refused(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=1)
    await post(controller)
    for answer in (
        await post(controller, NEW | {"name": "others"}),
        await post(controller, {}),
        await controller.http.delete("/v1/topics/orders", headers=KEY),
    ):
        assert code(answer) == (42250, "refused")
        assert "POST /v1/topics" in answer.json()["message"]
    assert await made(zk_session) == ["orders"]


async def test_a_refusal_frees_the_key(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=1)
    for body in (NEW | {"configs": {"no.such": 1}}, {"name": 7}):
        assert (await post(controller, body)).status_code == 400
    assert (await post(controller)).status_code == 201
    assert await made(zk_session) == ["orders"]


async def test_a_refusal_by_zookeeper_frees_the_key_too(rig: Rig, zk_session: ZkSession) -> None:
    """The multi was sent with its mark, and refused whole."""
    controller = await rig.up(brokers=1)
    body = NEW | {"configs": {"retention.ms": 1}}
    in_the_way = znodes.topic_path("orders")
    await zk_session.create(in_the_way, b"not JSON")
    refused = await post(controller, body)
    assert code(refused) == (40002, "refused")
    await zk_session.delete(in_the_way, ANY_VERSION)
    assert (await post(controller, body)).status_code == 201


async def test_a_dry_run_is_answered_again_without_an_effect(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1)
    tried = await post(controller, NEW | {"dry_run": True})
    again = await post(controller, NEW | {"dry_run": True})
    assert (tried.status_code, again.status_code) == (200, 200)
    assert again.headers["idempotency-replayed"] == "true"
    assert await made(zk_session) == []


async def test_the_next_controller_gives_the_answer_of_the_one_before(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1)
    first = await post(controller)
    await controller.retire()
    successor = await rig.controller()
    await rig.settled(successor)
    again = await post(successor)
    assert (again.status_code, again.content) == (201, first.content)
    assert await made(zk_session) == ["orders"]


async def test_a_request_under_way_is_not_begun_again(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=1)
    rig.brokers[1].deaf = True
    first = asyncio.create_task(post(controller))
    await until(lambda: "orders" in controller.service.image().topics, "it is under way")
    meanwhile = await post(controller)
    assert code(meanwhile) == (40960, "unknown")
    assert meanwhile.json()["retriable"]
    rig.brokers[1].deaf = False
    assert (await first).status_code == 201
    assert (await post(controller)).content == (await first).content
    assert await made(zk_session) == ["orders"]


async def test_a_change_whose_answer_was_lost_is_neither_repeated_nor_called_a_failure(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1, create_topic_timeout_ms=300)
    rig.brokers[1].deaf = True
    first = await post(controller)
    assert code(first) == (50450, "unknown")
    assert await state(zk_session) == "changed"
    again = await post(controller)
    assert code(again) == (40961, "unknown")
    assert first.headers["x-leadline-cause"] in again.json()["message"]
    assert await made(zk_session) == ["orders"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_controller_that_ends_at_any_write_does_it_once_or_says_that_it_did(
    rig: Rig, zk_session: ZkSession, after: bool
) -> None:
    """The record, the topic, its states, the answer: four writes, and each may be the last."""
    controller = await rig.up(brokers=1, store_type=MortalStore)
    seen = []
    for cut in range(1, 6):
        name = f"t{cut}"
        body, headers = NEW | {"name": name}, {"Idempotency-Key": name}
        store = controller.stores[-1]
        assert isinstance(store, MortalStore)
        store.dies_after_sending, store.writes_left = after, cut
        first = await controller.http.post("/v1/topics", json=body, headers=headers)
        survived = store.writes_left > 0
        store.writes_left = -1
        if not survived:
            await controller.retire()
            controller.resume()
        await rig.settled(controller)
        again = await controller.http.post("/v1/topics", json=body, headers=headers)
        assert (await made(zk_session)).count(name) == 1
        if again.status_code == 201:
            assert again.json()["name"] == name
        else:
            assert code(again) == (40961, "unknown")
            assert first.status_code != 201 or not survived
        seen.append((first.status_code, again.status_code))
    # 503 where the first write was one of the controller's own, and the request still queued.
    assert seen[0] in {(504, 201), (503, 201)}
    assert seen[-1] == (201, 201)
    assert (504, 409) in seen


async def test_a_request_begun_in_one_term_changes_nothing_in_a_later_one(
    rig: Rig, zk_session: ZkSession
) -> None:
    """The later term takes a record of an earlier one that is not marked for one of no effect."""
    controller = await rig.up(brokers=1)
    key, service = KEY["Idempotency-Key"], controller.service
    mark = await service.ask(TakeKey(key=key, request="slow", what="POST /v1/topics"))
    assert isinstance(mark, Mark)
    await controller.retire()
    controller.resume()
    await rig.settled(controller)
    new = NewTopic("slow", 1, 1)
    with guard_scope(Guard(mark=mark)), pytest.raises(NoController):
        await service.ask(CreateTopic(new=new, dry_run=False))
    assert await state(zk_session) == "begun"
    assert await made(zk_session) == []


async def test_records_are_forgotten_when_they_are_past_their_time(
    rig: Rig, zk_session: ZkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "CLEANUP_INTERVAL_MS", 0)
    controller = await rig.up(brokers=1, idempotency_retention_ms=1_000, reconcile_interval_ms=100)
    await zk_session.create(znodes.idempotency_path("0" * 32), b"not a record")
    await post(controller)

    async def forgotten() -> bool:
        return not await zk_session.get_children(znodes.IDEMPOTENCY)

    await wait_until(forgotten, "no record is left")
    assert code(await post(controller))[0] == 40002  # it exists: this is a request of its own


async def test_a_request_is_done_once_although_the_wall_clock_is_set_forward(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = counted_clean_ups(monkeypatch)
    controller = await rig.up(brokers=1, reconcile_interval_ms=100)
    assert (await post(controller)).status_code == 201

    step_wall(monkeypatch, years=10)
    passes.clear()
    await until(lambda: len(passes) > 1, "expired records are looked for")

    assert (await post(controller)).headers["idempotency-replayed"] == "true"


async def test_a_record_from_the_future_is_forgotten_in_its_time(
    rig: Rig, zk_session: ZkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was ahead when its request began; ten thousand of these would displace others."""
    counted_clean_ups(monkeypatch)
    controller = await rig.up(brokers=1, idempotency_retention_ms=1_000, reconcile_interval_ms=100)
    with pytest.MonkeyPatch.context() as ahead:
        step_wall(ahead, years=10)
        assert (await post(controller)).status_code == 201

    async def forgotten() -> bool:
        return not await zk_session.get_children(znodes.IDEMPOTENCY)

    await wait_until(forgotten, "no record is left")


def counted_clean_ups(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Let expired records be looked for at every occasion; return a list that grows with each."""
    passes: list[None] = []
    real = IdempotencyManager.reconcile

    async def reconcile(manager: IdempotencyManager) -> None:
        await real(manager)
        passes.append(None)

    monkeypatch.setattr(IdempotencyManager, "reconcile", reconcile)
    monkeypatch.setattr(idempotency, "CLEANUP_INTERVAL_MS", 0)
    return passes


def step_wall(patch: pytest.MonkeyPatch, years: int) -> None:
    """Set the wall clock that services see."""
    real = SystemClock.wall_ms
    patch.setattr(SystemClock, "wall_ms", lambda clock: real(clock) + years * 31_536_000_000)


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\tin"])
async def test_a_key_that_is_none_is_refused(rig: Rig, zk_session: ZkSession, key: str) -> None:
    controller = await rig.up(brokers=1)
    answer = await controller.http.post("/v1/topics", json=NEW, headers={"Idempotency-Key": key})
    assert code(answer) == (40050, "refused")
    assert answer.json()["fields"][0]["field"] == "header.Idempotency-Key"
    assert await made(zk_session) == []


async def test_what_only_asks_takes_no_key(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    question = {"kind": "offline", "assignment": [1, 2], "isr": [1, 2], "live": [2]}
    for live in ([1], [2]):
        answer = await controller.http.post(
            "/v1/what-if/election", json=question | {"live": live}, headers=KEY
        )
        assert answer.json()["leader"] == live[0]


# -- If-Match ------------------------------------------------------------------


async def test_two_operators_cannot_overwrite_each_others_settings(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    http = controller.http
    paths = {
        "/v1/configs": "num.partitions",
        "/v1/brokers/1/configs": "log.retention.ms",
        "/v1/topics/orders/configs": "retention.ms",
    }
    for path, name in paths.items():
        seen = (await http.get(path)).headers["etag"]
        one = await http.patch(path, json={"set": {name: 5}}, headers={"If-Match": seen})
        assert one.status_code == 200, one.text
        other = await http.patch(path, json={"set": {name: 6}}, headers={"If-Match": seen})
        assert code(other) == (41250, "refused")
        assert other.json()["etag"] == one.headers["etag"] == (await http.get(path)).headers["etag"]
        both = f'"no", {one.headers["etag"]}'
        good = await http.patch(path, json={"set": {name: 7}}, headers={"If-Match": both})
        assert good.status_code == 200
        star = await http.patch(path, json={"remove": [name]}, headers={"If-Match": "*"})
        assert star.json()["changed"][0]["before"] == "7"


async def test_a_change_made_by_hand_in_between_is_not_overwritten_either(
    rig: Rig, zk_session: ZkSession
) -> None:
    """Before the controller has heard of it."""
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, configs={"retention.ms": 1})
    path = "/v1/topics/orders/configs"
    seen = (await controller.http.get(path)).headers["etag"]
    by_hand = znodes.encode_configs({"retention.ms": "2"})
    await zk_session.set(znodes.topic_config_path("orders"), by_hand, ANY_VERSION)
    body = {"set": {"retention.ms": 3}}
    answer = await controller.http.patch(path, json=body, headers={"If-Match": seen})
    assert code(answer) == (41250, "refused")
    data, _ = await zk_session.get(znodes.topic_config_path("orders"))
    assert znodes.decode_configs(data) == {"retention.ms": "2"}


async def test_a_topic_is_deleted_only_as_it_was_seen(rig: Rig) -> None:
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment={"0": [1, 2]})
    http = controller.http
    seen = (await http.get("/v1/topics/orders")).headers["etag"]
    await rig.brokers[1].leave()
    await until(lambda: rig.brokers[2].roles["orders", 0].leader == 2, "another one leads")
    assert (await http.get("/v1/topics/orders")).headers["etag"] == seen
    grown = await http.post(
        "/v1/topics/orders/partitions", json={"partitions": 2}, headers={"If-Match": seen}
    )
    assert grown.status_code in (200, 201), grown.text
    assert code(await http.delete("/v1/topics/orders", headers={"If-Match": seen}))[0] == 41250
    seen = (await http.get("/v1/topics/orders")).headers["etag"]
    assert (await http.delete("/v1/topics/orders", headers={"If-Match": seen})).is_success
    await create(controller, replica_assignment={"0": [2]})
    assert code(await http.delete("/v1/topics/orders", headers={"If-Match": seen}))[0] == 41250


async def test_an_election_may_demand_the_metadata_that_it_was_decided_on(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    http, body = controller.http, {"type": "preferred"}
    seen = (await http.get("/v1/metadata")).headers["etag"]
    same = await http.post("/v1/elections", json=body, headers={"If-Match": seen})
    assert same.status_code == 200, same.text
    await create(controller, "others", partitions=1, replication_factor=1)
    stale = await http.post("/v1/elections", json=body, headers={"If-Match": seen})
    assert code(stale) == (41250, "refused")


async def test_a_condition_that_cannot_be_checked_is_refused(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    for path, stated in (("/v1/topics", '"1"'), ("/v1/configs", "1"), ("/v1/configs", 'W/"1"')):
        method = "POST" if path == "/v1/topics" else "PATCH"
        body = NEW if path == "/v1/topics" else {"set": {"num.partitions": 2}}
        answer = await controller.http.request(
            method, path, json=body, headers={"If-Match": stated}
        )
        assert code(answer) == (40050, "refused")
        assert answer.json()["fields"][0]["field"] == "header.If-Match"


async def test_a_repetition_is_answered_though_the_resource_has_changed_since(rig: Rig) -> None:
    """By the first one of the two: a retry after a lost answer must not look like a conflict."""
    controller = await rig.up(brokers=1)
    seen = (await controller.http.get("/v1/configs")).headers["etag"]
    body, headers = {"set": {"num.partitions": 2}}, KEY | {"If-Match": seen}
    answers = [await controller.http.patch("/v1/configs", json=body, headers=headers) for _ in "ab"]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert answers[1].headers["etag"] == answers[0].headers["etag"]


async def test_two_administrators_cannot_overwrite_each_others_grants(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    viewer, admin = (
        {"role": role, "topics": ["*"], "groups": ["*"]} for role in ("viewer", "admin")
    )
    user = {"name": "alice", "grants": [admin]}
    (await controller.http.post("/v1/users", json=user)).raise_for_status()
    read = await controller.http.get("/v1/users/alice")
    assert read.headers["etag"] == f'"{read.json()["version"]}"'
    known = {"If-Match": read.headers["etag"]}
    path = "/v1/users/alice/grants"
    taken = await controller.http.put(path, json={"grants": [viewer]}, headers=known)
    assert taken.status_code == 200, taken.text
    assert taken.json()["version"] != read.json()["version"]
    late = await controller.http.put(path, json={"grants": [admin, viewer]}, headers=known)
    assert code(late) == (41250, "refused")
    quotas = await controller.http.put("/v1/users/alice/quotas", json={}, headers=known)
    assert code(quotas) == (41250, "refused")
    now = (await controller.http.get("/v1/users/alice")).json()
    assert (now["grants"], now["version"]) == ([viewer], taken.json()["version"])


async def test_a_user_that_was_made_again_is_not_the_one_that_was_read(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    (await controller.http.post("/v1/users", json={"name": "bob"})).raise_for_status()
    known = {"If-Match": (await controller.http.get("/v1/users/bob")).headers["etag"]}
    (await controller.http.delete("/v1/users/bob")).raise_for_status()
    (await controller.http.post("/v1/users", json={"name": "bob"})).raise_for_status()
    assert code(await controller.http.delete("/v1/users/bob", headers=known)) == (41250, "refused")
    assert (await controller.http.delete("/v1/users/bob")).status_code == 200
