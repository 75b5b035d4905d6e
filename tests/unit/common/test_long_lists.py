"""Requests with a long list, which is decoded in turns."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_common.http import long_lists
from leadline_common.http.long_lists import LongListDecoder
from tests.unit.common.http_app import BulkRequest, BulkRow, Seen, build, client_of

PATH = "/v1/internal/countRows"
AT_ONCE = 1_000
ROWS = 500
"""Each takes seven bytes: four turns."""


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short bodies be long ones."""
    monkeypatch.setattr(long_lists, "AT_ONCE", AT_ONCE)


def long_body(row: bytes = b"[12,34]", last: bytes = b"") -> bytes:
    return b'{"note":"long","rows":[' + b",".join([row] * ROWS) + last + b"]}"


@given(
    st.lists(st.builds(BulkRow, st.integers(0, 9), st.integers(0, 9)), max_size=20),
    st.text(max_size=3),
    st.integers(1, 40),
)
def test_it_is_what_decoding_it_at_once_gives(rows: list[BulkRow], note: str, at_once: int) -> None:
    request = BulkRequest(rows, note)
    decoder = LongListDecoder(BulkRequest, "rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_lists, "AT_ONCE", at_once)
        assert asyncio.run(decoder.decode(msgspec.json.encode(request))) == request


async def test_others_run_while_it_is_decoded() -> None:
    decoding = asyncio.create_task(LongListDecoder(BulkRequest, "rows").decode(long_body()))
    turns = 0
    while not decoding.done():
        await asyncio.sleep(0)
        turns += 1
    request = decoding.result()
    assert request is not None
    assert (len(request.rows), request.note) == (ROWS, "long")
    assert turns >= 4


async def test_a_long_request_reaches_the_handler() -> None:
    seen = Seen()
    async with client_of(build(seen)) as client:
        answer = await client.post(
            PATH, content=long_body(), headers={"content-type": "application/json"}
        )
    assert (answer.status_code, answer.json()["count"]) == (200, ROWS)
    assert seen.bulk == [BulkRequest([BulkRow(12, 34)] * ROWS, "long")]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (long_body(last=b',[1,"x"]'), f"body.rows.{ROWS}.1"),
        (long_body(last=b",[1"), f"body.rows.{ROWS}"),
        (long_body() + b"}", "body"),
        (long_body(last=b',["\\ud800",1]'), "body"),
        (b'{"rows":' + b"[" * AT_ONCE, "body.rows.0.0"),
        (b'{"note":"' + b"n" * AT_ONCE + b'"}', "body"),
    ],
)
async def test_what_is_wrong_in_a_long_request_is_said_where(body: bytes, field: str) -> None:
    seen = Seen()
    async with client_of(build(seen)) as client:
        answer = await client.post(PATH, content=body, headers={"content-type": "application/json"})
    refusal = answer.json()
    assert (answer.status_code, refusal["error_code"]) == (400, 40050)
    assert refusal["message"].startswith(f"{field}: ")
    assert seen.bulk == []
