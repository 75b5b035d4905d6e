"""The checks behind the fault scenarios find what is planted: else their silence proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from leadline_client import batches
from leadline_client.batch_header import header_at
from leadline_client.errors import CorruptBatch
from leadline_client.payloads import OutgoingRecord
from leadline_common.znodes import (
    AuditEntry,
    BrokerRegistration,
    PartitionState,
    StateChange,
    TopicAssignment,
)
from leadline_controller.domain.history import CONTROLLER_ELECTED, AuditRecord
from tests.support.checks.invariants import stamped_wrongly
from tests.support.checks.replica_files import Replica, differences, read_replica
from tests.support.checks.zk_history import ZkView
from tests.support.faults.load import Ack

KEY = ("t", 0)


def stored(base_offset: int, epoch: int, *values: str) -> bytes:
    data = bytearray(batches.encode([OutgoingRecord(value.encode()) for value in values], now_ms=1))
    batches.stamp(data, header_at(data), base_offset, epoch)
    return bytes(data)


def replica(root: Path, *segments: bytes, broker: str = "broker-1") -> Replica:
    directory = root / broker / "t-0"
    directory.mkdir(parents=True)
    for segment in segments:
        (directory / f"{header_at(segment).base_offset:020d}.log").write_bytes(segment)
    return read_replica(broker, root / broker, "t", 0)


def test_replica_is_read_over_its_segments(tmp_path: Path) -> None:
    read = replica(tmp_path, stored(0, 1, "a", "b") + stored(2, 1, "c"), stored(3, 4, "d"))
    assert read.records() == {0: (1, "a"), 1: (1, "b"), 2: (1, "c"), 3: (4, "d")}
    assert read.log_end_offset == 4
    assert read.problems() == []
    assert list(read.as_read().records) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def test_gap_and_falling_epoch_are_found(tmp_path: Path) -> None:
    read = replica(tmp_path, stored(0, 5, "a"), stored(2, 3, "b"))
    assert [problem[:2] for problem in read.problems()] == ["I5", "I6"]


def test_a_log_that_begins_after_its_first_segment_is_found(tmp_path: Path) -> None:
    data = stored(3, 1, "a")
    directory = tmp_path / "broker-1" / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(data)
    read = read_replica("broker-1", tmp_path / "broker-1", "t", 0)
    assert read.problems() == ["I5: broker-1 t-0: begins at 3, not at 0"]


def test_replicas_may_begin_at_different_offsets(tmp_path: Path) -> None:
    one = replica(tmp_path, stored(0, 1, "a") + stored(1, 1, "b"), broker="broker-1")
    two = replica(tmp_path, stored(1, 1, "b"), broker="broker-2")
    three = replica(tmp_path, stored(1, 1, "c"), broker="broker-3")
    assert differences([one, two], 2) == []
    assert "differ in the batch at 1" in differences([one, three], 2)[0]


def test_flipped_byte_is_found(tmp_path: Path) -> None:
    data = bytearray(stored(0, 1, "a"))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        replica(tmp_path, bytes(data))


def test_replicas_that_differ_are_found(tmp_path: Path) -> None:
    one = replica(tmp_path, stored(0, 1, "a") + stored(1, 1, "b"), broker="broker-1")
    two = replica(tmp_path, stored(0, 1, "a") + stored(1, 2, "b"), broker="broker-2")
    three = replica(tmp_path, stored(0, 1, "a"), broker="broker-3")
    assert differences([one, two], 1) == []
    assert "differ in the batch at 1" in differences([one, two], 2)[0]
    assert "2 and 1 batches" in differences([one, three], 2)[0]


def test_acknowledgement_in_another_epoch_than_stored_is_found(tmp_path: Path) -> None:
    read = replica(tmp_path, stored(0, 1, "a") + stored(1, 3, "b"))

    def ack(offset: int, epoch: int, *, duplicate: bool = False) -> Ack:
        return Ack(0, offset, epoch, 1, duplicate, at_s=0.0)

    leaders = {1: 1, 3: 2}
    assert stamped_wrongly([ack(0, 1), ack(1, 3)], read, leaders) == []
    assert stamped_wrongly([ack(1, 9, duplicate=True)], read, leaders) == []
    assert len(stamped_wrongly([ack(1, 2)], read, leaders)) == 1
    assert "nobody was elected for epoch 3" in stamped_wrongly([], read, {1: 1, 3: -1})[0]


BIRTH = StateChange("t", 0, "new", None, (1, 0, (1, 2, 3)), 0)
MOVE = StateChange("t", 0, "isr", (1, 0, (1, 2, 3)), (2, 1, (2, 3)), 1)


def entry(*changes: StateChange) -> AuditEntry:
    return AuditEntry(time=0, cause="c", actor="controller-1", kind="k", changes=changes)


ELECTION = AuditEntry(time=0, cause="c", actor="controller-1", kind=CONTROLLER_ELECTED)


def a_view() -> ZkView:
    """A history in which nothing is wrong: created, then moved from broker 1 to 2."""
    return ZkView(
        controller=None,
        controller_epoch=1,
        brokers={2: BrokerRegistration(2, "h", 1, "http://h:1", None, 7)},
        incarnations={1: 3, 2: 7},
        topics={"t": TopicAssignment("id", {0: (1, 2, 3)})},
        states={KEY: (PartitionState(2, 1, (2, 3), 1), 1)},
        written_in={KEY: 11},
        deletions=[],
        audit=[ELECTION, entry(BIRTH), entry(MOVE)],
        audited_in=[9, 10, 11],
    )


def changed(**members: object) -> Callable[[], ZkView]:
    return lambda: ZkView(
        **{**{name: getattr(a_view(), name) for name in ZkView.__slots__}, **members}
    )


def with_move(**members: object) -> Callable[[], ZkView]:
    return changed(audit=[ELECTION, entry(BIRTH), entry(msgspec.structs.replace(MOVE, **members))])


def with_state(leader: int, epoch: int, isr: tuple[int, ...]) -> Callable[[], ZkView]:
    """Return a view whose state is odd, but is what was audited last."""
    change = msgspec.structs.replace(MOVE, after=(leader, epoch, isr))
    state = PartitionState(leader, epoch, isr, 1)
    return changed(audit=[ELECTION, entry(BIRTH), entry(change)], states={KEY: (state, 1)})


def test_whole_history_has_no_problems() -> None:
    assert a_view().problems() == []
    assert a_view().leaders("t", 0) == {0: 1, 1: 2}


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (with_state(1, 1, (2, 3)), "outside the ISR"),
        (with_state(2, 1, (2, 9)), "not within the assignment"),
        (changed(deletions=["t"]), "left over"),
        (changed(incarnations={2: 8}), "old incarnation"),
        (changed(audit=[ELECTION, entry(BIRTH)]), "the node has 1"),
        (changed(audited_in=[9, 10, 12]), "its own multi"),
        (with_move(before=(1, 0, (1, 2))), "it follows"),
        (with_move(after=(3, 1, (2, 3))), "the last audited change"),
        (with_state(2, 0, (2, 3)), "epoch 0 has the leaders 1 and 2"),
        (changed(controller_epoch=2), "I12: 1 elections were audited, the epoch is 2"),
        (changed(controller_epoch=0, audit=[]), "I12: controller epoch 1 wrote t-0"),
        (with_move(before=(1, 4, (1, 2, 3))), "I6: leader epoch 1 after 4"),
    ],
)
def test_planted_problem_is_found(plant: Callable[[], ZkView], found: str) -> None:
    assert found in "\n".join(plant().problems())


def test_what_was_trimmed_is_taken_from_a_controller() -> None:
    trimmed = changed(audit=[entry(MOVE)], audited_in=[11], audit_begins=2)()
    assert trimmed.problems() != []
    stored = [
        AuditRecord(number, zxid, one)
        for number, (zxid, one) in enumerate([(9, ELECTION), (10, entry(BIRTH)), (11, entry(MOVE))])
    ]
    assert trimmed.completed(stored) == a_view()
    with pytest.raises(AssertionError):
        trimmed.completed([])
