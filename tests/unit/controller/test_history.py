"""Past states rebuilt from the audit, and trimming of the outbox, without a database."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_common.audit_export import decode_line, encode_lines, exported, imported
from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.domain.history import (
    AuditRecord,
    FailureRecord,
    PastCluster,
    PastPartition,
    ReaderPosition,
    resource_of,
    trimmable,
)
from tests.support.checks.audit_records import broken_chains, replay


def entry(kind: str = "broker_change", **members: Any) -> AuditEntry:
    return AuditEntry(time=members.pop("time", 0), cause="c", actor="a", kind=kind, **members)


def record(number: int, written: AuditEntry) -> AuditRecord:
    return AuditRecord(number, 100 + number, written)


def change(
    version: int,
    before: tuple[int, int, tuple[int, ...]] | None,
    after: tuple[int, int, tuple[int, ...]],
    partition: int = 0,
) -> StateChange:
    return StateChange("orders", partition, "isr", before, after, version)


def test_the_past_is_rebuilt_from_its_entries() -> None:
    topic = {"topic": "orders", "topic_id": "id"}
    past = replay(
        [
            record(0, entry("controller_elected", after={"id": 2})),
            record(1, entry("brokers_changed", after={"brokers": [1, 2, 3]})),
            record(2, entry("topic_created", resource=topic, after={"assignment": {"0": [1, 2]}})),
            record(3, entry(changes=(change(0, None, (1, 0, (1, 2))),))),
            record(4, entry(changes=(change(1, (1, 0, (1, 2)), (2, 1, (2,))),))),
        ]
    )
    assert (past.audit_id, past.zxid) == (4, 104)
    assert (past.controller, past.brokers) == (2, [1, 2, 3])
    assert past.topics["orders"].topic_id == "id"
    assert past.topics["orders"].partitions == {0: PastPartition((1, 2), 2, 1, (2,), 1)}


@pytest.mark.parametrize("kind", ["topic_deletion_ordered", "topic_deleted"])
def test_a_topic_is_gone_once_its_deletion_is_requested(kind: str) -> None:
    topic = {"topic": "orders", "topic_id": "id"}
    made = record(0, entry("topic_created", resource=topic, after={"assignment": {"0": [1]}}))
    assert replay([made, record(1, entry(kind, resource=topic))]).topics == {}


def test_a_partition_that_was_removed_is_gone() -> None:
    topic = {"topic": "orders", "topic_id": "id"}
    rows = {"assignment": {"0": [1], "1": [2]}}
    made = record(0, entry("topic_created", resource=topic, after=rows))
    less = record(1, entry("partitions_removed", resource=topic, after={"assignment": {"1": None}}))
    assert replay([made, less]).topics["orders"].partitions.keys() == {0}


def test_a_step_of_a_reassignment_changes_the_replicas() -> None:
    topic = {"topic": "orders", "topic_id": "id"}
    made = record(0, entry("topic_created", resource=topic, after={"assignment": {"0": [1, 2]}}))
    rows = {"0": {"replicas": [3, 1, 2], "adding": [3], "removing": [1]}}
    step = record(1, entry("reassignment_step", resource=topic, after=rows))
    assert replay([made, step]).topics["orders"].partitions[0].replicas == (3, 1, 2)


def test_a_past_with_missing_entries_is_incomplete() -> None:
    topic = {"topic": "orders", "topic_id": "id"}
    made = record(0, entry("topic_created", resource=topic, after={"assignment": {"0": [1]}}))
    gap = AuditRecord(7, 0, entry("history_gap", time=99))
    past = replay([made, gap])
    assert not past.complete
    assert (past.audit_id, past.zxid, past.time) == (7, 100, 0), "a gap is not a transaction"
    assert replay([record(8, entry())], past).complete is False


def test_a_restored_cluster_begins_again_without_what_was_missing() -> None:
    past = PastCluster()
    past.apply(record(0, entry("history_gap")))
    past.apply(record(1, entry(changes=(change(0, None, (1, 0, (1,))),))))
    assert (past.complete, list(past.topics)) == (False, ["orders"])
    past.apply(record(2, entry("cluster_restored")))
    assert (past.complete, past.reason, past.topics) == (True, "", {})


def test_a_chain_breaks_where_a_version_is_missing() -> None:
    first, third = change(0, None, (1, 0, (1,))), change(2, (1, 0, (1,)), (2, 1, (2,)))
    (problem,) = broken_chains(
        [record(0, entry(changes=(first,))), record(1, entry(changes=(third,)))]
    )
    assert "writes version 2, not 1" in problem


def test_a_chain_breaks_where_a_change_begins_elsewhere() -> None:
    first, second = change(0, None, (1, 0, (1,))), change(1, (3, 0, (3,)), (2, 1, (2,)))
    (problem,) = broken_chains(
        [record(0, entry(changes=(first,))), record(1, entry(changes=(second,)))]
    )
    assert "begins with" in problem


def test_a_recreated_topic_begins_a_new_chain() -> None:
    made = change(0, None, (1, 0, (1,)))
    gone = entry("topic_deleted", resource={"topic": "orders"})
    written = [
        record(0, entry(changes=(made,))),
        record(1, gone),
        record(2, entry(changes=(made,))),
    ]
    assert list(broken_chains(written)) == []


def test_an_entry_about_one_partition_is_about_it() -> None:
    one = entry(changes=(change(0, None, (1, 0, (1,)), partition=7),))
    assert (resource_of(one).topic, resource_of(one).partition) == ("orders", 7)
    two = entry(changes=(change(0, None, (1, 0, (1,))), change(0, None, (1, 0, (1,)), 1)))
    assert resource_of(two).topic is None


def test_an_export_is_read_back_as_it_was() -> None:
    written = entry(
        resource={"topic": "orders"},
        before={"a": 1},
        after=[1, 2],
        zk={"/x": 3},
        changes=(change(0, None, (1, 0, (1,))), change(1, (1, 0, (1,)), (2, 1, (2,)))),
    )
    (line,) = encode_lines([exported(5, 105, written)]).splitlines()
    read = decode_line(line)
    assert (read.id, read.zxid) == (5, 105)
    assert imported(read) == written


positions = st.lists(st.integers(-1, 400), max_size=4)


def test_defect_16_what_is_only_in_memory_is_no_stored_copy() -> None:
    lone = ReaderPosition(1, "", 0, 99, durable=False)
    assert trimmable([lone], oldest=0, head=100, keep=0, limit=1000) == range(0)
    other = ReaderPosition(2, "", 0, 80)
    assert trimmable([lone, other], oldest=0, head=100, keep=0, limit=1000) == range(81)
    assert trimmable([lone, other], oldest=0, head=100, keep=0, limit=50) == range(81)
    assert trimmable([lone], oldest=0, head=100, keep=0, limit=50) == range(50), "it must end"


@given(stored=positions, oldest=st.integers(0, 300), extent=st.integers(0, 200), data=st.data())
def test_trimming_the_outbox_loses_no_entry(
    stored: list[int], oldest: int, extent: int, data: st.DataObject
) -> None:
    head = oldest + extent
    stored = [min(one, head - 1) for one in stored]
    keep = data.draw(st.integers(0, 50))
    limit = data.draw(st.integers(1, 200))
    readers = [ReaderPosition(n, "", 0, one) for n, one in enumerate(stored)]
    gone = trimmable(readers, oldest=oldest, head=head, keep=keep, limit=limit)
    assert gone.start == oldest
    assert gone.stop <= max(oldest, head)
    if len(gone):
        copies = sum(one >= gone.stop - 1 for one in stored)
        assert copies >= min(2, len(stored)), "two controllers have stored it, or the only one has"
        assert gone.stop - 1 <= min(stored) or head - oldest > limit


def test_entries_that_all_readers_have_are_trimmed_except_the_newest() -> None:
    readers = [ReaderPosition(1, "", 0, 99), ReaderPosition(2, "", 0, 80)]
    assert trimmable(readers, oldest=0, head=100, keep=10, limit=1000) == range(81)
    readers = [ReaderPosition(1, "", 0, 99), ReaderPosition(2, "", 0, 99)]
    assert trimmable(readers, oldest=0, head=100, keep=10, limit=1000) == range(90)


def test_beyond_the_limit_trimming_does_not_wait_for_a_slow_reader() -> None:
    readers = [ReaderPosition(n, "", 0, stored) for n, stored in enumerate((99, 95, 3))]
    assert trimmable(readers, oldest=0, head=100, keep=0, limit=1000) == range(4)
    assert trimmable(readers, oldest=0, head=100, keep=0, limit=50) == range(50)


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "failed"),
        ({"returned_at": 5}, "cancelled"),
        ({"queued_at": 5, "chunks": 2, "partitions": 4}, "healing"),
        ({"queued_at": 5, "over_at": 9, "partitions": 4, "partitions_moved": 4}, "healed"),
        (
            {
                "queued_at": 5,
                "over_at": 9,
                "partitions": 4,
                "partitions_moved": 2,
                "chunks_cancelled": 1,
                "returned_at": 7,
            },
            "partly_healed",
        ),
        (
            {
                "queued_at": 5,
                "over_at": 9,
                "partitions": 4,
                "chunks_cancelled": 2,
                "returned_at": 7,
            },
            "cancelled",
        ),
        ({"queued_at": 5, "over_at": 5}, "healed"),
        ({"chunks_over": 1, "partitions_moved": 3}, "failed"),
        ({"chunks_over": 1, "partitions_moved": 3, "returned_at": 7}, "partly_healed"),
    ],
)
def test_outcome_of_a_failure(changes: dict[str, Any], outcome: str) -> None:
    blank: dict[str, Any] = {
        "broker": 1,
        "failed_at": 1,
        "incarnation": 0,
        "detected_by": "controller-1",
        "controller_epoch": 1,
        "returned_at": None,
        "queued_at": None,
        "chunks": 0,
        "chunks_over": 0,
        "chunks_cancelled": 0,
        "partitions": 0,
        "partitions_moved": 0,
        "bytes_moved": 0,
        "over_at": None,
    }
    assert FailureRecord(**blank | changes).outcome == outcome


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["0", "1", "x", "replicas", "id"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KINDS = st.sampled_from(
    ["controller_elected", "topic_created", "topic_deleted", "reassignment_step", "other"]
)


@given(
    _KINDS,
    st.dictionaries(st.sampled_from(["topic", "topic_id", "broker"]), _JSON),
    st.dictionaries(st.sampled_from(["id", "brokers", "assignment", "0", "x"]), _JSON) | _JSON,
)
def test_an_entry_that_somebody_else_wrote_does_not_hide_the_past(
    kind: str, resource: dict[str, Any], after: Any
) -> None:
    made = record(0, entry("controller_elected", after={"id": 2}))
    past = replay([made, record(1, entry(kind, resource=resource, after=after))])
    assert past.audit_id == 1
    kept = msgspec.json.decode(msgspec.json.encode(past), type=PastCluster)
    assert kept == past


def test_a_controller_whose_id_is_no_number_is_unknown() -> None:
    past = replay([record(0, entry("controller_elected", after={"id": False}))])
    assert past.controller is None


def test_a_past_with_an_entry_that_cannot_be_applied_is_not_complete() -> None:
    wrong = entry("topic_created", resource={"topic": "t"}, after={"assignment": {"x": 5}})
    past = replay([record(7, wrong)])
    assert not past.complete
    assert "entry 7" in past.reason


@pytest.mark.parametrize(
    "members",
    [
        {"kind": "topic_created", "resource": {"topic": 5}},
        {"kind": "topic_created", "resource": {"topic": "t"}, "after": {"assignment": {"x": 5}}},
        {"kind": "history_gap"},
    ],
)
def test_the_changes_of_an_entry_are_applied_even_if_the_rest_of_it_is_unfit(
    members: dict[str, Any],
) -> None:
    first, second = change(0, None, (1, 0, (1,))), change(1, (1, 0, (1,)), (2, 1, (2,)))
    past = replay(
        [record(0, entry(changes=(first,))), record(1, entry(**members, changes=(second,)))]
    )
    assert not past.complete
    assert past.topics["orders"].partitions == {0: PastPartition((), 2, 1, (2,), 1)}
