"""Batches are checked record by record before they are accepted, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import batches, codec, compiled_codec, plain_codec, record_checks
from leadline_client.batch_header import BatchHeader, header_at
from leadline_client.batches import CODECS, LATEST_TIMESTAMP
from leadline_client.errors import BodyTooLarge, InvalidRequest, LeadlineError
from leadline_client.payloads import OutgoingRecord
from leadline_client.record_checks import MOST_BATCHES, check_batches, finish
from leadline_client.unreadable import UnreadableRecords
from tests.support.bad_input.batches import (
    BOMBS,
    HOSTILE,
    LARGE_BOMBS,
    MIB,
    NOW,
    TOO_LARGE,
    Hostile,
    compressed,
    forged,
    good,
    record,
    with_crc,
)

MOST = 16 * MIB
MOST_MEMORY = 64 * MIB
DATA = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.builds(
        OutgoingRecord,
        value=DATA,
        key=DATA,
        headers=st.lists(st.tuples(st.text(max_size=9), DATA), max_size=3).map(tuple),
        timestamp=st.none() | st.integers(0, LATEST_TIMESTAMP),
    ),
    min_size=1,
    max_size=5,
)
PEAK = """
import pathlib, re, sys
from leadline_client.errors import BodyTooLarge
from leadline_client.record_checks import check_batches, finish
data = pathlib.Path(sys.argv[1]).read_bytes()
def peak():
    # Not ru_maxrss, which a process inherits from the one that started it.
    return int(re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
before = peak()
try:
    finish(check_batches(data, 1 << 20, int(sys.argv[2])))
except BodyTooLarge:
    print((peak() - before) * 1024)
"""


def check(data: bytes, limit: int = MOST) -> list[BatchHeader]:
    return finish(check_batches(data, MIB, limit))


@pytest.fixture(params=[compiled_codec, plain_codec], ids=["compiled", "plain"])
def by_codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each of the codecs."""
    monkeypatch.setattr(record_checks, "CODEC", request.param)
    return request.param


@pytest.mark.parametrize("one", [*HOSTILE, *LARGE_BOMBS], ids=str)
def test_a_hostile_batch_is_refused_with_its_reason(one: Hostile) -> None:
    with pytest.raises(LeadlineError) as refusal:
        check(one.data)

    assert refusal.value.code == one.code
    assert one.says in refusal.value.message


@pytest.mark.parametrize(
    "one", [one for one in HOSTILE if not header_at(one.data).attributes], ids=str
)
def test_the_codec_without_packages_refuses_the_same(one: Hostile, by_codec: Any) -> None:
    with pytest.raises(LeadlineError) as refusal:
        check(one.data)

    assert refusal.value.code == one.code


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("count", [1, 499, 500, 501, 2_000])
def test_what_producers_send_is_accepted(name: str, count: int) -> None:
    [header] = check(good(name, count))

    assert header.record_count == count


@pytest.mark.parametrize("name", ["snappy", "lz4", "zstd", "gzip"])
def test_a_batch_may_decompress_to_the_limit_and_no_more(name: str) -> None:
    section = b"".join(record(number) for number in range(100))
    data = forged(compressed(section, name), 100, attributes=CODECS[name])

    assert check(data, len(section))
    with pytest.raises(BodyTooLarge) as refusal:
        check(data, len(section) - 1)
    assert refusal.value.details["limit"] == len(section) - 1


def test_gzip_without_packages_has_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_checks, "CODEC", plain_codec)
    section = record(0)
    data = forged(compressed(section, "gzip"), 1, attributes=CODECS["gzip"])

    assert check(data, len(section))
    with pytest.raises(BodyTooLarge):
        check(data, len(section) - 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("one", [*BOMBS, *LARGE_BOMBS], ids=str)
def test_a_bomb_takes_no_more_memory_than_the_limit_allows(one: Hostile, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(one.data)

    command = [sys.executable, "-c", PEAK, str(bomb), str(MOST)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert one.code == TOO_LARGE
    assert int(done.stdout) < MOST_MEMORY


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_the_peak_is_seen(tmp_path: Path) -> None:
    """A bomb within the limit takes memory that the test above would notice."""
    bomb = tmp_path / "bomb"
    bomb.write_bytes(BOMBS[0].data)

    command = [sys.executable, "-c", PEAK, str(bomb), str(128 * MIB)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert int(done.stdout) > MOST_MEMORY


def test_a_request_has_a_limited_number_of_batches() -> None:
    assert len(check(good("none", 1) * MOST_BATCHES)) == MOST_BATCHES
    with pytest.raises(InvalidRequest):
        check(good("none", 1) * (MOST_BATCHES + 1))


def test_a_check_of_many_records_pauses() -> None:
    pauses: list[None] = []

    finish(check_batches(good("lz4", 2_000), MIB, MOST), lambda: pauses.append(None))

    assert len(pauses) == 2_000 // plain_codec.CHUNK_RECORDS


@given(RECORDS, st.sampled_from(sorted(CODECS)))
def test_what_is_encoded_is_accepted_and_decoded_again(
    records: list[OutgoingRecord], name: str
) -> None:
    data = batches.encode(records, now_ms=NOW, compression=name)

    check(data)

    assert [(one.key, one.value, one.headers) for one in batches.decode(data)] == [
        (one.key, one.value, one.headers) for one in records
    ]


def outcome(read: Callable[[], object]) -> object:
    """What a function returns, or the type of the refusal."""
    try:
        return read()
    except LeadlineError as error:
        return type(error)


@given(st.sampled_from(sorted(CODECS)), st.data())
def test_a_changed_batch_with_a_right_crc_is_refused_or_readable(
    name: str, draw: st.DataObject
) -> None:
    changed = bytearray(good(name))
    for _ in range(draw.draw(st.integers(1, 4))):
        changed[draw.draw(st.integers(21, len(changed) - 1))] = draw.draw(st.integers(0, 255))
    data = with_crc(changed)

    accepted = outcome(lambda: check(data))

    if isinstance(accepted, list):
        [header] = accepted
        found = list(batches.decode(data))
        assert [one.offset for one in found] == list(range(header.record_count))
        assert max(one.timestamp for one in found) == header.max_timestamp
    outcome(lambda: list(batches.decode(data)))


@given(st.binary(max_size=60), st.integers(1, 4))
def test_both_codecs_accept_the_same_records(section: bytes, count: int) -> None:
    data = forged(record(0) + section, count)

    def accepted(by: codec.Codec) -> object:
        try:
            return [one for chunk in by.record_chunks(data, MOST, fields) for one in chunk]
        except UnreadableRecords:
            return None

    assert accepted(compiled_codec) == accepted(plain_codec)


def fields(one: Any) -> object:
    """All of a record that readers see; a compiled codec wraps numbers at 64 bits."""
    return one.offset, one.timestamp % 2**64, one.key, one.value, tuple(one.headers)
