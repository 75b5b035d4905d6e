"""Dynamic settings at the controller: through the API, and by hand in ZooKeeper."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from leadline_client.wire import NO_LEADER
from leadline_common import znodes
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_controller.runtime.engine.dynamic_configs import CLUSTER
from tests.integration.test_controller_spine import audit
from tests.support.services.controller_rig import Rig, create
from tests.support.services.zookeeper import until


async def test_settings_whose_node_is_deleted_by_hand_are_in_force_no_more(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1, reconcile_interval_ms=100)
    await create(controller, partitions=1, configs={"min.insync.replicas": 1})
    topic = controller.service.topic("orders")
    assert topic.configs == {"min.insync.replicas": "1"}
    await zk_session.delete(znodes.topic_config_path("orders"), ANY_VERSION)
    await until(lambda: topic.configs == {}, "the topic has no settings of its own")


async def test_a_slip_made_by_hand_undoes_nothing(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=1, reconcile_interval_ms=100)
    await create(controller, partitions=1, configs={"min.insync.replicas": 1})
    topic = controller.service.topic("orders")
    path = znodes.topic_config_path("orders")
    slip = znodes.encode_configs({"min.insync.replicas": "few", "retention.ms": "5000"})
    await zk_session.set(path, slip, ANY_VERSION)
    await until(lambda: "retention.ms" in topic.configs, "what is right is in force")
    assert topic.configs == {"min.insync.replicas": "1", "retention.ms": "5000"}
    assert topic.config_problems.keys() == {"min.insync.replicas"}
    await zk_session.set(path, b"not JSON", ANY_VERSION)
    await until(lambda: topic.configs_version == 2, "the node was read again")
    assert topic.configs == {"min.insync.replicas": "1", "retention.ms": "5000"}


def setting(answer: httpx.Response, name: str) -> Any:
    """Return one setting out of an answer."""
    assert answer.status_code == 200, answer.text
    return next(found for found in answer.json()["configs"] if found["name"] == name)


async def test_a_value_comes_from_the_closest_level_that_sets_it(rig: Rig) -> None:
    controller = await rig.up(brokers=1, num_partitions=4)
    await create(controller, partitions=1, replication_factor=1)
    http = controller.http

    async def retention() -> tuple[str, str, list[str]]:
        found = setting(await http.get("/v1/topics/orders/configs"), "retention.ms")
        return found["value"], found["source"], [one["source"] for one in found["synonyms"]]

    assert await retention() == ("604800000", "default", ["default"])
    assert (
        await http.patch("/v1/configs", json={"set": {"log.retention.ms": 7000}})
    ).status_code == 200
    assert await retention() == ("7000", "cluster", ["cluster", "default"])
    changed = await http.patch("/v1/topics/orders/configs", json={"set": {"retention.ms": "8000"}})
    assert changed.json()["changed"] == [{"name": "retention.ms", "before": None, "after": "8000"}]
    assert await retention() == ("8000", "topic", ["topic", "cluster", "default"])
    partitions = setting(await http.get("/v1/configs"), "num.partitions")
    assert (partitions["value"], partitions["source"]) == ("4", "static")
    await http.patch("/v1/brokers/1/configs", json={"set": {"log.retention.ms": 9000}})
    own = setting(await http.get("/v1/brokers/1/configs"), "log.retention.ms")
    assert (own["value"], own["source"]) == ("9000", "broker")
    await http.patch("/v1/topics/orders/configs", json={"remove": ["retention.ms"]})
    assert (await retention())[:2] == ("7000", "cluster")


async def test_a_change_is_written_with_its_audit_entry_and_read_by_the_next_controller(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1)
    limit = "reassignment.max.concurrent.leader.movements"
    alias = "reassignment.parallel.leader.movements"
    answer = await controller.http.patch("/v1/configs", json={"set": {alias: 3}})
    assert answer.json()["version"] == 1
    assert answer.headers["etag"] == '"1"'
    data, _ = await zk_session.get(znodes.CONFIG_CLUSTER)
    assert znodes.decode_configs(data) == {limit: "3"}
    entry = (await audit(zk_session))[-1]
    assert (entry.kind, entry.resource) == ("configs_changed", {"config": "cluster"})
    assert (entry.before, entry.after) == ({}, {limit: "3"})
    assert entry.zk == {znodes.CONFIG_CLUSTER: 1}
    await controller.retire()
    second = await rig.controller()
    await rig.settled(second)
    elected = second.leadership.active_controller
    assert elected is not None
    current = elected.configs.current()
    assert current.reassignment_max_concurrent_leader_movements == 3


async def test_nothing_is_written_on_a_dry_run_or_where_all_is_so_already(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    wanted = {"set": {"num.partitions": 3}}
    tried = await controller.http.patch("/v1/configs", json={**wanted, "dry_run": True})
    assert tried.json()["changed"] == [{"name": "num.partitions", "before": None, "after": "3"}]
    assert tried.json()["version"] == 0
    assert (await controller.http.patch("/v1/configs", json=wanted)).json()["version"] == 1
    again = (await controller.http.patch("/v1/configs", json=wanted)).json()
    assert (again["version"], again["changed"]) == (1, [])
    created = await create(controller)
    assert created["partitions"] == 3


async def test_settings_of_the_cluster_that_are_set_by_hand_are_in_force(
    rig: Rig, zk_session: ZkSession
) -> None:
    """By the watch: the reconciliation comes an hour later."""
    controller = await rig.up(brokers=1, reconcile_interval_ms=3_600_000)
    elected = controller.leadership.active_controller
    assert elected is not None
    configs = elected.configs
    path = znodes.CONFIG_CLUSTER
    await zk_session.set(path, znodes.encode_configs({"min.insync.replicas": "1"}), ANY_VERSION)
    await until(lambda: elected.image.policy.min_insync_replicas == 1, "it is in force")
    slip = znodes.encode_configs({"min.insync.replicas": "0", "log.dir": "/", "num.partitons": "1"})
    await zk_session.set(path, slip, ANY_VERSION)
    await until(lambda: bool(configs.accepted(CLUSTER).problems), "the slip was seen")
    assert elected.image.policy.min_insync_replicas == 1
    problems = (await controller.http.get("/v1/configs")).json()["problems"]
    assert "greater than or equal to 1" in problems["min.insync.replicas"]
    assert "read-only" in problems["log.dir"]
    assert "did you mean num.partitions?" in problems["num.partitons"]
    cleaned = await controller.http.patch("/v1/configs", json={"remove": list(problems)})
    assert cleaned.status_code == 200, cleaned.text
    assert elected.image.policy.min_insync_replicas == 2
    assert (await controller.http.get("/v1/configs")).json()["problems"] == {}


@pytest.mark.parametrize("level", ["cluster", "topic"])
async def test_enabling_unclean_elections_gives_leaderless_partitions_a_leader_at_once(
    rig: Rig, zk_session: ZkSession, level: str
) -> None:
    controller = await rig.up(brokers=2, reconcile_interval_ms=3_600_000)
    await create(controller, replica_assignment={"0": [1, 2]})
    await rig.brokers[2].leave()
    await until(lambda: rig.brokers[1].roles["orders", 0].isr == (1,), "2 has left the ISR")
    await rig.brokers[2].register()
    await rig.settled(controller)
    await rig.brokers[1].leave()
    roles = rig.brokers[2].roles
    await until(lambda: roles["orders", 0].leader == NO_LEADER, "nobody leads")
    path = "/v1/configs" if level == "cluster" else "/v1/topics/orders/configs"
    body = {"set": {"unclean.leader.election.enable": True}}
    assert (await controller.http.patch(path, json=body)).status_code == 200
    await until(lambda: roles["orders", 0].leader == 2, "the other one leads")
    entry = next(e for e in await audit(zk_session) if e.kind == "unclean_election_enabled")
    assert "may be lost" in entry.reason


async def test_brokers_hear_of_a_topics_settings(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    body = {"set": {"max.message.bytes": 2048}}
    assert (await controller.http.patch("/v1/topics/orders/configs", json=body)).status_code == 200
    told = rig.brokers[1].metadata
    await until(lambda: told["orders"].configs == {"max.message.bytes": "2048"}, "it is told")


async def test_the_reconciliation_follows_its_interval_when_that_is_lowered(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1, reconcile_interval_ms=3_600_000)
    await create(controller, partitions=1, replication_factor=1)
    topic = controller.service.topic("orders")
    await controller.http.patch("/v1/configs", json={"set": {"reconcile.interval.ms": 100}})
    path = znodes.topic_config_path("orders")
    await zk_session.create(path, znodes.encode_configs({"retention.ms": "5"}))
    await until(lambda: topic.configs == {"retention.ms": "5"}, "it is found")
    # Not by a reconciliation that the change itself has caused.
    await zk_session.set(path, znodes.encode_configs({"retention.ms": "6"}), ANY_VERSION)
    await until(lambda: topic.configs == {"retention.ms": "6"}, "it is found again")
