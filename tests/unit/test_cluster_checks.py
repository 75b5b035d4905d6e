"""Violations of I8, I12, I13, I16 and I17 are found where they are planted, and only there."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import batches
from leadline_client.batch_header import header_at
from leadline_client.client import AsyncClient
from leadline_client.errors import CorruptBatch
from leadline_client.payloads import OutgoingRecord
from leadline_common.znodes import AuditEntry, StateChange, TopicAssignment
from leadline_controller.domain.history import (
    ASSIGNMENT,
    CLUSTER_RESTORED,
    CONTROLLER_ELECTED,
    REASSIGNMENT_STEP,
    TOPIC_DELETED,
)
from tests.support.checks.anomalies import AnomalyKind
from tests.support.checks.controller_terms import term_problems
from tests.support.checks.history import History
from tests.support.checks.process_growth import (
    LEAST_S,
    WARM_UP_S,
    ProcessSample,
    growth_problems,
    sample_process,
)
from tests.support.checks.recovered_tails import (
    CutReport,
    Tail,
    crc_problems,
    cut_reports,
    recovery_problems,
    tail_at_rest,
    tails_at_rest,
)
from tests.support.checks.replica_samples import (
    DirectorySample,
    ReplicaSample,
    directory_problems,
    watermark_problems,
)
from tests.support.faults.load import Tail as Reader

# -- I8: high watermarks -----------------------------------------------------------


def isr_write(time_ms: int, *isr: int, reason: str = "isr", created: bool = False) -> AuditEntry:
    before = None if created else (1, 0, (1, 2, 3))
    change = StateChange("t", 0, reason, before, (isr[0], 0, isr), 0)
    return AuditEntry(time=time_ms, cause="c", actor="broker 1", kind="k", changes=(change,))


def replica(broker: int, at_ms: int, high_watermark: int, log_end: int) -> ReplicaSample:
    return ReplicaSample(broker, "t", "id", 0, high_watermark, log_end, at_ms, at_ms + 10)


CREATED = isr_write(0, 1, 2, 3, created=True)
MARKED = replica(1, 5_000, high_watermark=8, log_end=9)
BEHIND = replica(2, 6_000, high_watermark=5, log_end=7)


def test_an_isr_member_that_ends_before_a_high_watermark_is_found() -> None:
    found = watermark_problems([MARKED, BEHIND], [CREATED])
    assert found == [
        "I8: broker 2, in the ISR of t-0, ends at 7 after broker 1 had the high watermark 8"
    ]


@pytest.mark.parametrize(
    ("samples", "audit"),
    [
        ([MARKED, replica(2, 6_000, 8, 8)], [CREATED]),
        ([MARKED, replica(2, 5_005, 5, 7)], [CREATED]),
        ([MARKED, BEHIND], [CREATED, isr_write(4_000, 1, 3)]),
        ([MARKED, BEHIND], [CREATED, isr_write(6_900, 1, 3)]),
        ([MARKED, BEHIND], [CREATED, isr_write(1_000, 1, 3), isr_write(5_500, 1, 2, 3)]),
        ([MARKED, BEHIND], [CREATED, isr_write(3_000, 2, reason="unclean")]),
        ([MARKED, BEHIND], [CREATED, isr_write(3_000, 1, 2, 3, created=True)]),
    ],
    ids=["equal", "same-time", "left", "leaves", "joined", "unclean", "created-again"],
)
def test_replicas_that_may_be_behind_are_no_finding(
    samples: Sequence[ReplicaSample], audit: Sequence[AuditEntry]
) -> None:
    assert watermark_problems(samples, audit) == []


def test_a_broker_whose_disk_was_replaced_may_be_behind() -> None:
    assert watermark_problems([MARKED, BEHIND], [CREATED], excused={2}) == []


# -- I12: controller epochs --------------------------------------------------------


def by(actor: str, kind: str = "isr") -> AuditEntry:
    return AuditEntry(time=0, cause="c", actor=actor, kind=kind)


TERMS = [
    by("controller-1", CONTROLLER_ELECTED),
    by("controller-1"),
    by("broker 3"),
    by("admin"),
    by("controller-2", CONTROLLER_ELECTED),
    by("controller-2"),
]


def test_terms_in_order_have_no_problem() -> None:
    assert term_problems(TERMS, controller_epoch=2) == []


def test_a_write_of_an_older_controller_after_the_next_election_is_found() -> None:
    found = term_problems([*TERMS, by("controller-1", "failover")], controller_epoch=2)
    assert found == ["I12: controller-1 wrote entry 6 (failover) in epoch 2 of controller-2"]


@given(st.integers(0, len(TERMS)))
def test_a_controller_that_was_not_elected_is_found_anywhere(place: int) -> None:
    planted = [*TERMS[:place], by("controller-9"), *TERMS[place:]]
    assert len(term_problems(planted, controller_epoch=2)) == 1


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_an_epoch_that_is_not_the_number_of_elections_is_found(epoch: int) -> None:
    assert "2 elections" in term_problems(TERMS, epoch)[0]


def test_a_restored_cluster_begins_with_any_epoch() -> None:
    assert term_problems([by("operator", CLUSTER_RESTORED), *TERMS], controller_epoch=7) == []


# -- I13: directories --------------------------------------------------------------

KEY = ("id", 0)
TOPICS = {"t": TopicAssignment("id", {0: (1, 2)})}
MADE = AuditEntry(
    time=0,
    cause="c",
    actor="controller-1",
    kind="topic_created",
    resource={"topic": "t", "topic_id": "id"},
    after={ASSIGNMENT: {"0": [1, 2, 3]}},
)
MOVED_AWAY = AuditEntry(
    time=1,
    cause="c",
    actor="controller-1",
    kind=REASSIGNMENT_STEP,
    resource={"topic": "t"},
    after={"0": {"replicas": [1, 2], "adding": [], "removing": []}},
)
DELETED = AuditEntry(
    time=1, cause="c", actor="a", kind=TOPIC_DELETED, resource={"topic": "t", "topic_id": "id"}
)


def seen(broker: int, at_ms: int, inode: int | None) -> DirectorySample:
    return DirectorySample(broker, at_ms, {} if inode is None else {KEY: inode})


def test_a_directory_that_vanishes_is_found() -> None:
    samples = [seen(2, 1, 7), seen(2, 2, None)]
    found = directory_problems(samples, TOPICS, [MADE])
    assert found == ["I13: broker 2: partition 0 of id is gone"]
    assert directory_problems(samples, TOPICS, [MADE], excused={2}) == []


def test_a_directory_that_was_made_again_is_found() -> None:
    found = directory_problems([seen(2, 1, 7), seen(2, 2, 8)], TOPICS, [MADE])
    assert found == ["I13: broker 2: partition 0 of id is another directory than before"]


def test_a_directory_that_vanished_for_a_while_is_found() -> None:
    samples = [seen(2, 3, 7), seen(2, 2, None), seen(2, 1, 7)]
    assert len(directory_problems(samples, TOPICS, [MADE])) == 1


@pytest.mark.parametrize(
    ("audit", "topics"),
    [([MADE, MOVED_AWAY], TOPICS), ([MADE, DELETED], {})],
    ids=["reassigned", "deleted"],
)
def test_what_was_ordered_away_may_vanish(
    audit: Sequence[AuditEntry], topics: dict[str, TopicAssignment]
) -> None:
    samples = [seen(3, 1, 7), seen(3, 2, None)]
    assert directory_problems(samples, topics, audit) == []


def test_a_reassignment_takes_no_directory_of_a_replica_that_stays() -> None:
    samples = [seen(2, 1, 7), seen(2, 2, None)]
    assert len(directory_problems(samples, TOPICS, [MADE, MOVED_AWAY])) == 1


# -- I16: tails and CRCs -----------------------------------------------------------


def stored(base_offset: int, epoch: int, *values: str) -> bytes:
    data = bytearray(batches.encode([OutgoingRecord(value.encode()) for value in values], now_ms=1))
    batches.stamp(data, header_at(data), base_offset, epoch)
    return bytes(data)


GOOD = stored(4, 1, "a", "b") + stored(6, 2, "c")


def at_rest(root: Path, data: bytes) -> Tail:
    directory = root / "t-0"
    directory.mkdir(exist_ok=True)
    (directory / f"{0:020d}.log").write_bytes(stored(0, 1, "w", "x", "y", "z"))
    (directory / f"{4:020d}.log").write_bytes(data)
    return tail_at_rest(directory)


@given(cut=st.integers(0, len(GOOD)))
def test_a_torn_tail_begins_with_its_first_incomplete_batch(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first = len(stored(4, 1, "a", "b"))
    whole, end = (len(GOOD), 7) if cut == len(GOOD) else (first, 6) if cut >= first else (0, 4)
    assert at_rest(tmp_path_factory.mktemp("log"), GOOD[:cut]) == Tail(end, cut - whole)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]),
        lambda _: stored(9, 2, "c"),
        lambda _: stored(6, 0, "c"),
        lambda batch: b"\0" * len(batch),
    ],
    ids=["bit", "gap", "epoch", "zeros"],
)
def test_an_invalid_batch_ends_the_valid_part(
    spoil: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    first, second = stored(4, 1, "a", "b"), stored(6, 2, "c")
    assert at_rest(tmp_path, first + spoil(second)) == Tail(6, len(second))
    assert tails_at_rest(tmp_path) == {"t-0": Tail(6, len(second))}
    assert tails_at_rest(tmp_path / "not there") == {}


def report(cut_offset: int, reason: str = "CRC mismatch") -> CutReport:
    return CutReport("t-0", cut_offset, 10, reason)


@pytest.mark.parametrize(
    ("tail", "reports", "found"),
    [
        (Tail(6, 0), [], None),
        (Tail(6, 9), [report(6)], None),
        (Tail(6, 9), [report(5, "epoch 3, which is not recorded for offset 5")], None),
        (Tail(6, 9), [report(5)], "I16: broker-1 cut t-0 at 5 (CRC mismatch), but it was valid"),
        (Tail(6, 0), [report(5)], "I16: broker-1 cut t-0 at 5"),
        (Tail(6, 9), [report(6, "")], "I16: broker-1 cut t-0 at 6 without a reason"),
        (Tail(6, 9), [], "I16: broker-1 did not report the 9 invalid bytes at the end of t-0"),
    ],
)
def test_cuts_are_compared_with_what_was_there(
    tail: Tail, reports: Sequence[CutReport], found: str | None
) -> None:
    problems = recovery_problems("broker-1", {"t-0": tail}, reports)
    assert len(problems) == (found is not None)
    assert "".join(problems).startswith(found or "")


def test_reports_are_read_from_a_broker_s_log() -> None:
    row = {"event": "invalid tail truncated", "directory": "t-0", "cut_offset": 6}
    line = json.dumps(row | {"cut_bytes": 10, "reason": "CRC mismatch"})
    assert cut_reports(f'{{"event": "logs opened"}}\n{line}\nnoise\n') == [report(6)]


def test_a_batch_with_a_wrong_crc_that_was_served_is_found() -> None:
    assert crc_problems(GOOD, "t-0") == []
    assert "wrong CRC at offset 6" in crc_problems(GOOD[:-1] + b"\xff", "t-0")[0]
    assert "no whole batches" in crc_problems(GOOD[:-1], "t-0")[0]


class Serving:
    """A client that answers every fetch with the same batches."""

    high_watermark = next_offset = 7

    def __init__(self, data: bytes) -> None:
        self.batches = data

    async def fetch_batches(self, *_: object, **__: object) -> Serving:
        return self


def test_a_reader_of_the_load_checks_what_it_is_served() -> None:
    reader = Reader("t", 0)
    with pytest.raises(CorruptBatch):
        asyncio.run(reader.read_on(cast("AsyncClient", Serving(GOOD[:-1] + b"\xff"))))
    assert [problem[:3] for problem in reader.problems] == ["I16"]


def test_a_reader_of_the_load_notes_its_polls_and_that_it_read_to_the_end() -> None:
    history = History()
    history.ack_batch(history.send_batch(["a", "b", "c"], ("t", 0)), 4)
    history.ack_batch(history.send_batch(["d"], ("t", 0)), 7)
    reader = Reader("t", 0, consumer=history.consumer("reader"))
    client = cast("AsyncClient", Serving(GOOD))
    asyncio.run(reader.read_on(client))
    assert history.check() == []
    asyncio.run(reader.read_to_end(client))
    assert [(one.kind, one.value) for one in history.check()] == [(AnomalyKind.UNSEEN, "d")]


# -- I17: growth -------------------------------------------------------------------


def life(
    grown: Callable[[float], int], of: str = "descriptors", hours: float = 2.0
) -> list[ProcessSample]:
    """Return a sample each minute, in which one number is a function of the hours gone by."""
    usual = {"descriptors": 100, "threads": 100, "resident_bytes": 100 << 20}
    return [
        ProcessSample("broker-1", 7, minute * 60.0, **{**usual, of: grown(minute / 60)})
        for minute in range(int(hours * 60) + 1)
    ]


@pytest.mark.parametrize(
    ("of", "unit"), [("descriptors", 1), ("threads", 1), ("resident_bytes", 1 << 20)]
)
def test_what_grows_more_than_a_tenth_an_hour_is_found(of: str, unit: int) -> None:
    assert growth_problems(life(lambda h: int(unit * (100 + 8 * h)), of)) == []
    found = growth_problems(life(lambda h: int(unit * (100 + 15 * h)), of))
    assert len(found) == 1
    assert f"I17: broker-1 (pid 7): {of} " in found[0]


def test_growth_before_the_warm_up_and_peaks_are_none() -> None:
    assert growth_problems(life(lambda h: 100 if h >= WARM_UP_S / 3600 else 10)) == []
    assert growth_problems(life(lambda h: 500 if int(h * 60) % 10 else 100)) == []


def test_some_seconds_with_less_than_usual_are_no_basis() -> None:
    cut_off_minute = 20
    assert growth_problems(life(lambda h: 60 if round(h * 60) == cut_off_minute else 100)) == []


def test_a_short_run_shows_nothing() -> None:
    hours = (WARM_UP_S + LEAST_S) / 3600 - 0.1
    assert growth_problems(life(lambda h: int(100 + 1000 * h), hours=hours)) == []


def test_a_process_that_was_started_again_is_another_one() -> None:
    old, new = life(lambda _: 100), life(lambda _: 200)
    later = [ProcessSample("broker-1", 8, 7200 + o.at_s, 200, 100, 100 << 20) for o in new]
    assert growth_problems([*old, *later]) == []


def test_this_process_is_sampled_from_proc() -> None:
    before = sample_process("me", os.getpid(), 1.0)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    try:
        after = sample_process("me", os.getpid(), 2.0)
    finally:
        stop.set()
        thread.join()
        for file in files:
            os.close(file)
    assert before is not None
    assert after is not None
    assert (after.descriptors - before.descriptors, after.threads - before.threads) == (5, 1)
    assert after.resident_bytes > 1 << 20
    assert sample_process("nobody", 1 << 30, 1.0) is None


def test_connections_count_for_the_process_that_opened_them_until_they_are_closed() -> None:
    me = partial(sample_process, "me", os.getpid(), 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = me()
        opened = [socket.create_connection(server.getsockname()) for _ in range(4)]
        accepted = [server.accept()[0] for _ in opened]
        during = me()
        for one in opened:
            one.close()
        for one in accepted:  # the end of each connection has arrived
            assert one.recv(1) == b""
        after = me()
        for one in accepted:
            one.close()
    assert before is not None
    assert during is not None
    assert after is not None
    assert during.descriptors - before.descriptors == len(opened)
    assert after.descriptors - before.descriptors == len(accepted)
