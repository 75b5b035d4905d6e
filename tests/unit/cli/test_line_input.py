"""Lines are yielded as they arrive, from files, pipes and terminals."""

from __future__ import annotations

import asyncio
import errno
import io
import os
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_cli.line_input import UnreadableInput, lines_of


async def every_line(file: BinaryIO) -> list[bytes]:
    return [line async for line in lines_of(file)]


@given(st.lists(st.binary().filter(lambda line: not {10, 13} & set(line))), st.booleans())
def test_every_line_comes_once_and_in_order(lines: list[bytes], ended: bool) -> None:
    text = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    expected = text.removesuffix(b"\n").split(b"\n") if text else []
    assert asyncio.run(every_line(io.BytesIO(text))) == expected


@given(
    st.lists(st.sampled_from([b"a", b"\r", b"a\r", b"\r\r", b"\ra", b""])),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_carriage_returns_that_end_no_line_stay(lines: list[bytes], end: bytes) -> None:
    """Binary values may end in them, and so may a last line that nothing ends."""
    text = b"".join(line + end for line in lines)
    expected = [(line + end).removesuffix(b"\n").removesuffix(b"\r") for line in lines]
    assert asyncio.run(every_line(io.BytesIO(text))) == expected
    assert asyncio.run(every_line(io.BytesIO(text + b"a\r"))) == [*expected, b"a\r"]


async def test_lines_of_a_file_may_be_long_and_end_as_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a" * 200_000 + b"\r\n\nlast")
    with path.open("rb") as file:
        assert await every_line(file) == [b"a" * 200_000, b"", b"last"]


async def test_a_line_of_a_pipe_is_given_before_the_next_is_written() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        lines = lines_of(file)
        for line in (b"first", b"second"):
            os.write(writing, line + b"\nrest of ")
            async with asyncio.timeout(10):
                assert (await anext(lines)).endswith(line)
        os.close(writing)
        assert [line async for line in lines] == [b"rest of "]


async def test_waiting_for_a_line_can_be_given_up() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file, os.fdopen(writing, "wb"), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await every_line(file)


class Failing(io.BytesIO):
    """A file on a disk that fails."""

    def read(self, size: int | None = -1) -> bytes:
        if read := super().read(size):
            return read
        raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_input_that_cannot_be_read_to_its_end_says_so_after_the_lines_before() -> None:
    lines = lines_of(Failing(b"first\nsecond\nthi"))
    assert [await anext(lines), await anext(lines)] == [b"first", b"second"]
    with pytest.raises(UnreadableInput, match="Input/output error"):
        await anext(lines)
