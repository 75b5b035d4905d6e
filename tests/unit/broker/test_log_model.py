"""A log against a list of batches, through appends, cuts, retention, stops and crashes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.producers import ProducerStates
from leadline_broker.domain.publishes import Publishes, piece_epoch, publisher_id
from leadline_client.batch_header import BatchHeader, header_at
from leadline_client.errors import StorageFailed
from tests.unit.broker.log_support import LateFsyncs, batch, open_log, read_all

SEGMENT_BYTES = 1500
APP = publisher_id("app")
PIECES = 3


class LogModel(RuleBasedStateMachine):
    """Invariant: the log holds exactly the model's batches, epochs and producers.

    Of publishes it may remember what retention has taken, but nothing that was cut.
    `ever` are the headers of all batches that were not cut.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.fsyncs = LateFsyncs()
        self.open()
        self.batches: list[bytes] = []
        self.start = 0
        self.epoch = 0
        self.sequence = 0
        self.published = 0
        self.ever: list[BatchHeader] = []

    def open(self, *, clean: bool = False) -> None:
        assert self.nothing_runs()
        root, fsyncs = Path(self.root.name), self.fsyncs
        self.log = open_log(root, clean=clean, segment_bytes=SEGMENT_BYTES, fsyncs=fsyncs)

    def nothing_runs(self) -> bool:
        """Tell whether each flush that was begun has ended."""
        return all(one.ended for one in self.fsyncs.started)

    @property
    def end(self) -> int:
        return header_at(self.batches[-1]).next_offset if self.batches else self.start

    @rule(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        length=st.sampled_from([0, 30, 700]),
        new_epoch=st.booleans(),
    )
    def append(self, counts: list[int], length: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        added: list[bytes] = []
        for count in counts:
            base = header_at(added[-1]).next_offset if added else self.end
            producer = (4, 0, self.sequence) if count % 2 else (-1, -1, -1)
            self.sequence += count if count % 2 else 0
            values = [b"%d" % base + b"x" * length] * count
            added.append(batch(base, *values, epoch=self.epoch, timestamp=base, producer=producer))
        self.add(added)

    def add(self, added: list[bytes]) -> None:
        assert self.log.append(b"".join(added)) == header_at(added[-1]).next_offset
        self.batches += added
        self.ever += map(header_at, added)

    @rule(pieces=st.integers(1, PIECES), length=st.sampled_from([0, 700]))
    def publish(self, pieces: int, length: int) -> None:
        """Append some pieces of the next batch, or of the one that is not complete."""
        known = publishes_of(self.ever).latest(APP)
        place = known.next_piece if known is not None and not known.complete else 0
        self.published += place == 0
        added: list[bytes] = []
        for number in range(place, min(place + pieces, PIECES)):
            base = header_at(added[-1]).next_offset if added else self.end
            producer = (APP, piece_epoch(number, PIECES), self.published)
            added.append(batch(base, b"x" * length, epoch=self.epoch, producer=producer))
        self.add(added)

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end == self.log.durable_end_offset
        assert self.nothing_runs()

    @rule(ends=st.booleans())
    def begin_flush(self, ends: bool) -> None:
        durable, end = self.log.durable_end_offset, self.end
        outcomes: list[StorageFailed | None] = []
        if self.log.begin_flush(outcomes.append):
            assert (outcomes, self.log.durable_end_offset) == ([], durable)
            if ends:
                self.fsyncs.started[-1].wait()
                assert (outcomes, self.log.durable_end_offset) == ([None], end)

    @rule()
    def end_flush(self) -> None:
        for one in self.fsyncs.started:
            one.wait()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.batches = [b for b in self.batches if header_at(b).next_offset <= offset]
        self.ever = [header for header in self.ever if header.next_offset <= offset]
        assert self.log.truncate_to(offset) == self.end
        assert self.log.durable_end_offset <= self.end
        assert self.nothing_runs()

    @rule(offset=st.integers(0, 50))
    def reset(self, offset: int) -> None:
        self.log.reset_to(offset, ProducerStates())
        if self.start != offset or self.batches:
            self.ever = []
        self.batches, self.start = [], offset

    @rule(keep=st.integers(0, 1500))
    def retain(self, keep: int) -> None:
        self.log.apply_retention(0, -1, keep, self.end)
        self.start = self.log.log_start_offset
        self.batches = [b for b in self.batches if header_at(b).base_offset >= self.start]

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close()
        self.open(clean=True)
        assert self.log.recovery.scanned_bytes == 0

    @rule()
    def crash(self) -> None:
        self.log.discard()
        self.open()
        assert self.log.recovery.cut_bytes == 0
        assert self.log.durable_end_offset == self.end

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), max_bytes=st.integers(1, 2000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        boundaries = [header_at(b).next_offset for b in self.batches]
        end = data.draw(st.sampled_from(boundaries))
        offset = data.draw(st.integers(self.start, self.end))
        found = self.log.read(offset, max_bytes, end)
        wanted = [b for b in self.batches if offset < header_at(b).next_offset <= end]
        whole = b"".join(wanted)
        assert whole.startswith(found)
        assert bool(found) == bool(wanted)
        assert len(found) <= max(max_bytes, len(wanted[0]) if wanted else 0)

    @invariant()
    def is_durable_up_to_a_place_within(self) -> None:
        assert self.log.durable_end_offset <= self.end

    @invariant()
    def holds_the_model(self) -> None:
        headers = [header_at(b) for b in self.batches]
        assert read_all(self.log) == self.batches
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.size_bytes == sum(map(len, self.batches))
        assert self.log.epochs.entries() == epochs_of(headers).entries()
        assert self.log.epochs.latest == (headers[-1].leader_epoch if headers else -1)

    @invariant()
    def knows_the_latest_batches_of_producers(self) -> None:
        expected = ProducerStates()
        for content in self.batches:
            expected.apply(header_at(content))
        for producer_id, _, _, batches in expected.rows():
            state = self.log.producers.get(producer_id)
            assert state is not None
            assert state.batches[-len(batches) :] == batches

    @invariant()
    def knows_what_is_published_and_nothing_that_was_cut(self) -> None:
        known = self.log.producers.publishes.latest(APP)
        certain = publishes_of([header_at(b) for b in self.batches]).latest(APP)
        assert known is not None or certain is None
        if known is not None:
            whole = publishes_of(self.ever).latest(APP)
            assert whole is not None
            assert known[:1] + known[4:] == whole[:1] + whole[4:]
            assert known.complete or known.next_piece == whole.next_piece

    def teardown(self) -> None:
        self.log.discard()
        self.root.cleanup()


def epochs_of(headers: list[BatchHeader]) -> EpochHistory:
    epochs = EpochHistory()
    for header in headers:
        epochs.assign(header.leader_epoch, header.base_offset)
    return epochs


def publishes_of(headers: list[BatchHeader]) -> Publishes:
    publishes = Publishes()
    for header in headers:
        if header.producer_id == APP:
            publishes.apply(header)
    return publishes


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
