"""Dynamic settings at the controller: through the API, and by hand in ZooKeeper."""

from __future__ import annotations

from leadline_common import znodes
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from tests.support.controller_rig import Rig, create
from tests.support.zookeeper import until


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
