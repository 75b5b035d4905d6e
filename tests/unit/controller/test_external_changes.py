"""Changes of others, found by comparing what was read, or the audit, with the image."""

from __future__ import annotations

from leadline_common.znodes import TopicAssignment
from leadline_controller.domain.cluster import (
    Change,
    ClusterImage,
    ConfigsSet,
    DeletionPending,
    StateSet,
    TopicSet,
)
from leadline_controller.domain.external_changes import (
    changed_states,
    differences,
    suspicious_states,
    topic_changes,
)
from leadline_controller.domain.history import PastCluster, PastPartition, PastTopic
from leadline_controller.domain.state import AuditedTransactions
from tests.unit.controller.images import TOPIC, cluster, state

AR = {0: (1, 2)}


def image() -> ClusterImage:
    return cluster([1, 2], AR, {0: state(1, (1, 2))})


def read(assignment: TopicAssignment, version: int = 1) -> TopicSet:
    return TopicSet(TOPIC, assignment, version, zxid=50)


def past(version: int = 3, zxid: int = 2, topic_id: str = "id-1") -> PastCluster:
    """Return what the audit has, which is the image unless it is told otherwise."""
    partition = PastPartition((1, 2), 1, 4, (1, 2), version)
    return PastCluster(topics={TOPIC: PastTopic(topic_id, {0: partition}, zxid)})


def test_defect_13_a_topic_that_is_read_again_unchanged_is_no_change() -> None:
    same: list[Change] = [read(TopicAssignment("id-1", AR)), ConfigsSet(TOPIC, {})]
    assert topic_changes(image(), same) == []


def test_defect_13_a_topic_of_another_id_is_another_topic() -> None:
    found = topic_changes(image(), [read(TopicAssignment("id-2", AR), version=0)])
    assert [(one.kind, one.resource["topic_id"]) for one in found] == [
        ("topic_deleted", "id-1"),
        ("topic_created", "id-2"),
    ]


def test_defect_13_nothing_is_said_of_a_topic_that_is_being_deleted() -> None:
    known = image()
    known.apply([DeletionPending(TOPIC)])
    changes: list[Change] = [
        read(TopicAssignment("id-1", {})),
        ConfigsSet(TOPIC, {"retention.ms": "1"}, 60, 0),
    ]
    assert topic_changes(known, changes) == []
    assert changed_states(known, [StateSet(TOPIC, 0, state(2, (2,), 9), 7)]) == []
    assert not differences(PastCluster(), known)


def test_defect_13_an_isr_alone_may_be_the_leaders_a_leader_may_not() -> None:
    shrunk = StateSet(TOPIC, 0, state(1, (1,)), 4)
    moved = StateSet(TOPIC, 0, state(2, (1, 2)), 4)
    assert suspicious_states(image(), [shrunk, moved]) == [moved]
    assert changed_states(image(), [shrunk, moved]) == [shrunk, moved]


def test_defect_13_of_a_transaction_before_the_trimmed_entries_nothing_is_certain() -> None:
    audited = AuditedTransactions(frozenset({70}), since=50)
    assert [zxid for zxid in (49, 50, 70, 71) if audited.lacks(zxid)] == [50, 71]


def test_defect_13_a_cluster_like_its_audit_has_no_differences() -> None:
    assert not differences(past(), image())


def test_defect_13_an_image_that_lags_behind_the_audit_is_no_difference() -> None:
    """A leader has written its ISR since, or the answer to the last write was lost."""
    later = past(version=9, zxid=70)
    later.topics[TOPIC].partitions[1] = PastPartition((2,))
    assert not differences(later, image())


def test_defect_13_what_the_audit_does_not_have_is_a_difference() -> None:
    found = differences(past(version=2), image())
    assert [(row.partition, row.state_version) for row in found.states] == [(0, 3)]
    gone = differences(PastCluster(topics={"old": PastTopic("x")} | past().topics), image())
    assert [(one.kind, one.resource["topic"]) for one in gone.changes] == [("topic_deleted", "old")]
    other = differences(past(topic_id="id-0"), image())
    assert [one.kind for one in other.changes] == ["topic_deleted", "topic_created"]
    assert len(other.states) == 1
