"""A log against a list of batches, through appends, cuts, retention, stops and crashes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.producers import ProducerStates
from leadline_client.batches import BatchHeader, header_at
from tests.unit.broker.log_support import batch, open_log, read_all

SEGMENT_BYTES = 1500


class LogModel(RuleBasedStateMachine):
    """Invariant: the log holds exactly the model's batches, epochs and producers."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.log = open_log(Path(self.root.name), segment_bytes=SEGMENT_BYTES)
        self.batches: list[bytes] = []
        self.start = 0
        self.epoch = 0
        self.sequence = 0

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
        assert self.log.append(b"".join(added)) == header_at(added[-1]).next_offset
        self.batches += added

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end == self.log.durable_end_offset

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.batches = [b for b in self.batches if header_at(b).next_offset <= offset]
        assert self.log.truncate_to(offset) == self.end
        assert self.log.durable_end_offset <= self.end

    @rule(offset=st.integers(0, 50))
    def reset(self, offset: int) -> None:
        self.log.reset_to(offset)
        self.batches, self.start = [], offset

    @rule(keep=st.integers(0, 1500))
    def retain(self, keep: int) -> None:
        self.log.apply_retention(0, -1, keep, self.end)
        self.start = self.log.log_start_offset
        self.batches = [b for b in self.batches if header_at(b).base_offset >= self.start]

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close()
        self.log = open_log(Path(self.root.name), clean=True, segment_bytes=SEGMENT_BYTES)
        assert self.log.recovery.scanned_bytes == 0

    @rule()
    def crash(self) -> None:
        self.log.discard()
        self.log = open_log(Path(self.root.name), segment_bytes=SEGMENT_BYTES)
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
            assert list(state.batches)[-len(batches) :] == batches

    def teardown(self) -> None:
        self.log.discard()
        self.root.cleanup()


def epochs_of(headers: list[BatchHeader]) -> EpochHistory:
    epochs = EpochHistory()
    for header in headers:
        epochs.assign(header.leader_epoch, header.base_offset)
    return epochs


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
