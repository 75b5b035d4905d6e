"""Controllers on a real ZooKeeper with brokers that record: failures, topics, elections."""

from __future__ import annotations

from typing import Any

from leadline_common import znodes
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry, TopicAssignment
from leadline_controller.runtime.channel.dispatcher import MISMATCHES_BEFORE_GRANT
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RecordingBroker, RunningController, read_state
from tests.support.services.zookeeper import until


async def audit(session: ZkSession) -> list[AuditEntry]:
    names = await session.get_children(znodes.AUDIT)
    found = await session.get_many([f"{znodes.AUDIT}/{name}" for name in names])
    return [znodes.decode_audit(node[0]) for node in found if node is not None]


async def beat(controller: RunningController, broker: RecordingBroker, **changes: Any) -> None:
    """Send what a broker says of itself."""
    await controller.heartbeat(broker.heartbeat(**changes))


async def test_a_topic_is_created_and_every_broker_has_it(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    made = await create(controller, partitions=6, replication_factor=3)
    assert made["partitions"] == 6
    for broker in rig.brokers.values():
        assert len(broker.roles) == 6
        assert broker.metadata["orders"].topic_id == made["topic_id"]
    state = await read_state(zk_session, "orders", 0)
    assert (state.leader, state.leader_epoch, len(state.isr)) == (1, 0, 3)
    document = (await controller.http.get("/v1/metadata")).json()
    assert document["topics"]["orders"]["partitions"][0][:3] == [0, 1, 0]


async def test_leadership_moves_when_a_leader_dies(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    await create(controller, partitions=6, replication_factor=3)
    await rig.brokers[1].leave()
    left = [rig.brokers[2], rig.brokers[3]]
    await until(
        lambda: all(r.leader != 1 and 1 not in r.isr for b in left for r in b.roles.values()),
        "the others know",
    )
    for partition in range(6):
        state = await read_state(zk_session, "orders", partition)
        assert state.leader in (2, 3)
        assert state.leader_epoch == 1
        assert set(state.isr) == {2, 3}


async def test_a_topic_is_deleted_and_may_be_created_again(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    first = await create(controller, partitions=3, replication_factor=2)
    answer = await controller.http.delete("/v1/topics/orders")
    assert (answer.status_code, answer.json()["complete"]) == (200, True)
    assert await zk_session.exists(znodes.topic_path("orders")) is None
    assert await zk_session.get_children(znodes.DELETE_TOPICS) == []
    assert all(not broker.roles for broker in rig.brokers.values())
    assert all("orders" not in broker.metadata for broker in rig.brokers.values())
    second = await create(controller, partitions=3, replication_factor=2)
    assert second["topic_id"] != first["topic_id"]


async def test_a_topic_written_into_zookeeper_by_hand_is_taken_up(
    rig: Rig, zk_session: ZkSession
) -> None:
    await rig.up()
    by_hand = znodes.encode_topic(TopicAssignment("", {0: (2, 3), 1: (3, 1)}))
    await zk_session.create(znodes.topic_path("manual"), by_hand)
    await until(lambda: "manual" in rig.brokers[3].metadata, "brokers hear of it")
    await until(lambda: len(rig.brokers[3].roles) == 2, "replicas have roles")
    data, _ = await zk_session.get(znodes.topic_path("manual"))
    assert znodes.decode_topic(data).topic_id
    assert (await read_state(zk_session, "manual", 1)).leader == 3


async def test_a_bounced_leader_leads_again_only_under_a_new_epoch(rig: Rig) -> None:
    """R9: its session ends and another begins before anybody reads."""
    controller = await rig.up(brokers=1)
    await create(controller, partitions=2, replication_factor=1)
    broker = rig.brokers[1]
    await broker.bounce()
    await until(lambda: len(broker.roles) == 2, "the new incarnation has its grant")
    await until(lambda: all(row.leader == 1 for row in broker.roles.values()), "it leads again")
    assert all(row.leader_epoch > 0 for row in broker.roles.values())
    granted = [c for c in broker.leader_and_isr if c.incarnation == broker.incarnation]
    assert not any(
        row.leader == 1 and row.leader_epoch == 0
        for command in granted
        for topic in command.topics
        for row in topic.partitions
    )


async def test_a_bounce_while_no_controller_rules_is_found_by_the_next_one(rig: Rig) -> None:
    """R9 across a controller failover: registered after its state was written."""
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    await controller.retire()
    broker = rig.brokers[1]
    await broker.bounce()
    controller.resume()
    await until(lambda: len(broker.roles) == 1, "the broker has its grant")
    assert broker.roles["orders", 0].leader_epoch == 1


async def test_the_isr_is_kept_and_an_unclean_election_by_hand_is_audited(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment={"0": [1, 2]})
    await rig.brokers[2].leave()
    await until(lambda: rig.brokers[1].roles["orders", 0].isr == (1,), "2 has left the ISR")
    await rig.brokers[1].leave()
    await rig.brokers[2].register()
    await rig.settled(controller)
    state = await read_state(zk_session, "orders", 0)
    assert (state.leader, state.isr, state.eligible) == (-1, (1,), (2,))
    ready = await controller.http.get("/readyz")
    assert ready.json()["state"] == "degraded"
    answer = await controller.http.post(
        "/v1/elections",
        json={"type": "unclean", "partitions": [{"topic": "orders", "partition": 0}]},
    )
    assert answer.json()["elected"][0]["leader"] == 2
    state = await read_state(zk_session, "orders", 0)
    assert (state.leader, state.isr) == (2, (2,))
    entry = next(e for e in await audit(zk_session) if e.kind == "election")
    assert "nothing that was committed is lost" in entry.reason, "2 is eligible (KIP-966)"
    assert entry.changes[0].reason == "unclean"
    assert entry.changes[0].before == (-1, state.leader_epoch - 1, (1,))


async def test_every_state_write_has_its_audit_row(rig: Rig, zk_session: ZkSession) -> None:
    """I14: one row for each version, and each begins where the one before ended."""
    controller = await rig.up()
    await create(controller, partitions=4, replication_factor=3)
    await rig.brokers[3].leave()
    await until(lambda: rig.brokers[1].roles["orders", 3].leader_epoch == 1, "3 is out")
    await rig.brokers[3].register()
    await rig.settled(controller)
    rows = [change for entry in await audit(zk_session) for change in entry.changes]
    for partition in range(4):
        _, stat = await zk_session.get(znodes.state_path("orders", partition))
        history = [row for row in rows if row.partition == partition]
        assert [row.state_version for row in history] == list(range(stat.version + 1))
        assert [row.before for row in history[1:]] == [row.after for row in history[:-1]]


async def test_preferred_election_returns_leadership(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment={"0": [1, 2]})
    await rig.brokers[1].leave()
    await until(lambda: rig.brokers[2].roles["orders", 0].leader == 2, "2 leads")
    await rig.brokers[1].register()
    await rig.settled(controller)
    path = znodes.state_path("orders", 0)
    state = await read_state(zk_session, "orders", 0)
    grown = znodes.PartitionState(2, state.leader_epoch, (2, 1), state.controller_epoch)
    await zk_session.set(path, znodes.encode_state(grown), ANY_VERSION)
    await beat(controller, rig.brokers[2], isr_changes=[("orders", 0)])
    await until(
        lambda: rig.brokers[1].metadata["orders"].partitions[0].isr == (2, 1),
        "the leader's ISR is in everybody's metadata",
    )
    answer = await controller.http.post("/v1/elections", json={"type": "preferred"})
    assert [row["leader"] for row in answer.json()["elected"]] == [1]


async def test_a_conflicting_isr_write_is_read_and_decided_again(
    rig: Rig, zk_session: ZkSession
) -> None:
    """R7: the controller's cached version is stale when the broker dies."""
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2, 3], "1": [1, 2, 3]})
    state = await read_state(zk_session, "orders", 0)
    shrunk = znodes.PartitionState(1, 0, (1, 3), state.controller_epoch)
    await zk_session.set(znodes.state_path("orders", 0), znodes.encode_state(shrunk), 0)
    await rig.brokers[1].leave()
    await until(lambda: rig.brokers[3].roles["orders", 0].leader == 3, "3 leads")
    after = await read_state(zk_session, "orders", 0)
    assert (after.leader, after.isr, after.leader_epoch) == (3, (3,), 1)
    assert (await read_state(zk_session, "orders", 1)).leader == 2


async def test_commands_are_repeated_until_they_are_taken(rig: Rig) -> None:
    controller = await rig.up(brokers=2)
    deaf, other = rig.brokers[2], rig.brokers[1]
    deaf.refuse_next = [50355, 50355]
    await create(controller, partitions=2, replication_factor=2)
    assert len(deaf.roles) == 2
    deaf.deaf = True
    await controller.http.delete("/v1/topics/orders", params={"wait_ms": 0})
    await until(lambda: not other.roles, "the other broker has stopped its replicas")
    assert len(deaf.roles) == 2
    deaf.deaf = False
    await until(lambda: not deaf.roles, "the deaf one too, at last")


async def test_a_broker_that_lost_its_roles_gets_them_again(rig: Rig) -> None:
    """R8: the digest in the heartbeat differs, lastingly."""
    controller = await rig.up(brokers=1)
    await create(controller, partitions=3, replication_factor=1)
    broker = rig.brokers[1]
    grants = sum(command.is_init for command in broker.leader_and_isr)
    for _ in range(5):
        await beat(controller, broker)
    assert sum(command.is_init for command in broker.leader_and_isr) == grants
    broker.roles.clear()
    for _ in range(5):
        await beat(controller, broker)
    await until(lambda: len(broker.roles) == 3, "the roles are back")


async def test_a_deletion_that_takes_long_is_no_disagreement(rig: Rig) -> None:
    """A full grant names no replica of the topic, and would make strays of them."""
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    broker = rig.brokers[1]
    broker.deaf = True
    await controller.http.delete("/v1/topics/orders?wait_ms=0")
    grants = sum(command.is_init for command in broker.leader_and_isr)
    for _ in range(MISMATCHES_BEFORE_GRANT + 1):
        await beat(controller, broker)
    broker.deaf = False
    await until(lambda: bool(broker.stops), "it is asked to delete")
    await rig.settled(controller)
    assert sum(command.is_init for command in broker.leader_and_isr) == grants


async def test_a_broker_with_other_metadata_gets_all_of_it(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    broker = rig.brokers[1]
    await rig.settled(controller)
    broker.metadata.clear()
    broker.metadata_version = 0
    await beat(controller, broker)
    await until(lambda: "orders" in broker.metadata, "the metadata is back")
    assert broker.updates[-1].full


async def test_deltas_name_only_what_changed(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    for name in ("a", "b", "c"):
        await create(controller, name, partitions=1, replication_factor=1)
    await rig.settled(controller)
    assert [topic.topic for topic in rig.brokers[1].updates[-1].topics] == ["c"]


async def test_an_election_answers_what_was_written(rig: Rig, zk_session: ZkSession) -> None:
    """A partition named twice is elected once, and a deletion under way is in nobody's way."""
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment={"0": [1, 2]})
    await create(controller, "going", replica_assignment={"0": [1, 2]})
    state = znodes.PartitionState(2, 1, (1, 2), 1)
    path = znodes.state_path("orders", 0)
    await zk_session.set(path, znodes.encode_state(state), ANY_VERSION)
    await beat(controller, rig.brokers[2], isr_changes=[("orders", 0)])
    image = controller.service.image()
    await until(lambda: image.topics["orders"].partitions[0].version == 1, "the state is read")
    order = {"type": "preferred", "partitions": [{"topic": "orders", "partition": 0}] * 2}
    answer = await controller.http.post("/v1/elections", json=order)
    assert [row["leader_epoch"] for row in answer.json()["elected"]] == [2]
    assert (await read_state(zk_session, "orders", 0)).leader == 1
    rig.brokers[1].deaf = True
    assert (await controller.http.delete("/v1/topics/going?wait_ms=0")).status_code in (200, 202)
    answer = await controller.http.post("/v1/elections", json={"type": "unclean"})
    assert (answer.status_code, answer.json()["elected"]) == (200, [])
    rig.brokers[1].deaf = False
