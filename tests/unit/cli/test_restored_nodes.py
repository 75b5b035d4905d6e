"""Which nodes a restored cluster begins with."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec
import pytest

from leadline_broker.adapters.log.survey import LogSurvey, SurveyedLog
from leadline_cli.backup.archive import Node
from leadline_cli.backup.recovery import NotRecoverable
from leadline_cli.backup.restored_nodes import Choices, RestoredNodes, restored_nodes
from leadline_common import consumer_znodes, znodes
from leadline_common.consumer_znodes import GroupNode
from leadline_common.znodes import PartitionState, TopicAssignment

NOW = 1_700_000_000_000
GROUP = "/consumers/groups/readers"
TOPIC = TopicAssignment("id-1", {0: (1,)})
BACKUP = {
    "/cluster": b"",
    "/cluster/id": b"c",
    "/controller_epoch": b"7",
    "/latest_producer_id_block": b'{"version":1,"next":3000}',
    "/brokers/ids": b"",
    "/brokers/epochs": b"",
    "/brokers/epochs/1": b"",
    "/brokers/directories": b"",
    "/brokers/directories/1": b'{"version":1,"versions":{"disk-1":9}}',
    "/brokers/topics": b"",
    "/brokers/topics/t": znodes.encode_topic(TOPIC),
    "/brokers/topics/t/partitions": b"",
    "/brokers/topics/t/partitions/0": b"",
    "/brokers/topics/t/partitions/0/state": znodes.encode_state(PartitionState(1, 4, (1,), 7)),
    "/config/topics/t": znodes.encode_configs({"retention.ms": "5"}),
    "/security/users/ann": b"hashes",
    "/of/later/releases": b"kept",
    "/admin/audit": b"",
    "/admin/audit/entry-0000000009": b"{}",
    "/admin/delete_topics": b"",
    "/admin/delete_topics/t": b"id-1",
    "/admin/preferred_replica_election": b"{}",
    "/admin/failed_brokers/3": b"{}",
    "/consumers": b"",
    "/consumers/coordinator_epoch": b"12",
    GROUP: consumer_znodes.encode(GroupNode("range", "eager", 5)),
    f"{GROUP}/ids": b"",
    f"{GROUP}/ids/member": b"{}",
    f"{GROUP}/owners": b"",
    f"{GROUP}/owners/t": b"{}",
    f"{GROUP}/offsets/t/0": b"offset",
}
SURVEY = LogSurvey("c", 1, "disk-1", 9, 30, 4500, (SurveyedLog("t", "id-1", 0, 4, 10),))


def backup(changes: dict[str, bytes] | None = None) -> list[Node]:
    return [Node(path, data, 2) for path, data in (BACKUP | (changes or {})).items()]


def restore(
    survey: LogSurvey = SURVEY, changes: dict[str, bytes] | None = None
) -> tuple[RestoredNodes, dict[str, Node]]:
    restored = restored_nodes(backup(changes), [survey], Choices(), NOW)
    return restored, {node.path: node for node in restored.nodes}


def test_numbers_that_fence_are_higher_than_any_that_were_seen() -> None:
    _, nodes = restore()
    assert nodes["/controller_epoch"].data == b"1000009", "a broker has accepted epoch 9"
    assert nodes["/consumers/coordinator_epoch"].data == b"1000012"
    assert msgspec.json.decode(nodes["/latest_producer_id_block"].data)["next"] == 1_004_501
    assert nodes["/brokers/epochs/1"].version == 1_030, "a clean stop has noted 30"
    group = msgspec.json.decode(nodes[GROUP].data, type=GroupNode)
    assert (group.generation, group.empty_since) == (1_000_005, NOW)
    state = znodes.decode_state(nodes["/brokers/topics/t/partitions/0/state"].data)
    assert (state.leader_epoch, state.isr, state.leader) == (1_000_004, (1,), -1)


def test_r17_the_logs_of_now_decide_whatever_version_their_directory_had() -> None:
    _, nodes = restore()
    assert "/brokers/directories" in nodes
    assert "/brokers/directories/1" not in nodes


def test_epochs_that_cannot_be_read_are_at_least_their_nodes_versions() -> None:
    _, nodes = restore(changes={"/consumers/coordinator_epoch": b"damaged"})
    assert nodes["/consumers/coordinator_epoch"].data == b"1000002"


def test_what_is_not_known_to_be_wrong_stays_as_it_was() -> None:
    _, nodes = restore()
    for path in ("/config/topics/t", "/security/users/ann", "/of/later/releases"):
        assert nodes[path] == Node(path, BACKUP[path], 0)
    assert nodes[f"{GROUP}/offsets/t/0"].data == b"offset"
    assert "/brokers/ids" in nodes


def test_what_was_ordered_and_who_was_there_is_left_out_and_counted() -> None:
    restored, nodes = restore()
    for path in (
        "/cluster/id",
        "/admin/delete_topics/t",
        "/admin/preferred_replica_election",
        "/admin/failed_brokers/3",
        "/admin/audit/entry-0000000009",
        f"{GROUP}/ids/member",
        f"{GROUP}/owners/t",
    ):
        assert path not in nodes, path
    assert {"/admin/delete_topics", f"{GROUP}/ids", f"{GROUP}/owners"} <= nodes.keys()
    assert restored.left_out == {
        "/admin/audit": 1,
        "/admin/delete_topics": 1,
        "/admin/preferred_replica_election": 1,
        "/admin/failed_brokers": 1,
    }


def test_parents_come_first_and_none_is_missing() -> None:
    restored, _ = restore()
    seen = {"/"}
    for node in restored.nodes:
        assert str(PurePosixPath(node.path).parent) in seen, node.path
        seen.add(node.path)


def test_a_topic_that_the_backup_lacks_keeps_everything() -> None:
    logs = (*SURVEY.logs, SurveyedLog("new", "id-2", 0, 1, 1))
    _, nodes = restore(msgspec.structs.replace(SURVEY, logs=logs))
    configs = znodes.decode_configs(nodes["/config/topics/new"].data)
    assert configs == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert znodes.decode_topic(nodes["/brokers/topics/new"].data).topic_id == "id-2"


def test_a_topic_that_was_created_again_keeps_its_other_settings() -> None:
    logs = (SurveyedLog("t", "id-2", 0, 1, 1),)
    settings = {"/config/topics/t": znodes.encode_configs({"retention.ms": "5", "other": "x"})}
    _, nodes = restore(msgspec.structs.replace(SURVEY, logs=logs), settings)
    configs = znodes.decode_configs(nodes["/config/topics/t"].data)
    assert configs == {"retention.ms": "-1", "retention.bytes": "-1", "other": "x"}


@pytest.mark.parametrize(
    ("changes", "survey", "said"),
    [
        ({}, msgspec.structs.replace(SURVEY, cluster_id="other"), "belong to cluster other"),
        ({"/brokers/topics/t": b"?"}, SURVEY, "/brokers/topics/t cannot be read"),
        ({"/brokers/epochs/1": b"?"}, SURVEY, "/brokers/epochs/1 cannot be read"),
        ({GROUP: b"?"}, SURVEY, "readers cannot be read"),
    ],
)
def test_what_cannot_be_decided_is_refused(
    changes: dict[str, bytes], survey: LogSurvey, said: str
) -> None:
    with pytest.raises(NotRecoverable, match=said):
        restore(survey, changes)


def test_a_state_that_cannot_be_read_follows_from_the_logs() -> None:
    _, nodes = restore(changes={"/brokers/topics/t/partitions/0/state": b"?"})
    state = znodes.decode_state(nodes["/brokers/topics/t/partitions/0/state"].data)
    assert (state.leader_epoch, state.isr) == (1_000_004, (1,))
