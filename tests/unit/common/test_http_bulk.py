"""Bulk routes: structs in, structs out, and nothing through that does not decode."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from leadline_common.rpc import MSGPACK
from tests.unit.common.http_app import BulkRequest, BulkResponse, BulkRow, Seen, build, client_of

JSON_PATH = "/v1/internal/countRows"
PACKED_PATH = "/v1/internal/countPackedRows"


async def test_json_in_json_out() -> None:
    seen = Seen()
    async with client_of(build(seen)) as client:
        answer = await client.post(JSON_PATH, json={"rows": [[0, 1], [1, 2]]})
    assert answer.headers["content-type"] == "application/json"
    assert (answer.status_code, answer.json()["count"]) == (200, 2)
    assert seen.bulk == [BulkRequest([BulkRow(0, 1), BulkRow(1, 2)])]


async def test_msgpack_in_msgpack_out() -> None:
    packed = msgspec.msgpack.encode(BulkRequest([BulkRow(0, 1)]))
    async with client_of(build()) as client:
        answer = await client.post(
            PACKED_PATH, content=packed, headers={"content-type": MSGPACK, "x-leadline-cause": "c1"}
        )
    assert answer.headers["content-type"] == MSGPACK
    assert msgspec.msgpack.decode(answer.content, type=BulkResponse) == BulkResponse(1, "c1")


async def test_bytes_are_answered_as_they_are() -> None:
    async with client_of(build()) as client:
        answer = await client.post(JSON_PATH, json={"rows": [], "note": "prebuilt"})
    assert (answer.headers["content-length"], answer.content) == ("7", b"[1,2,3]")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"rows": [[0, 1], [1, "x"]]}', "body.rows.1.1"),
        (b'{"rows": {}}', "body.rows"),
        (b'{"note": "n"}', "body"),
        (b'{"rows": [', "body"),
        (b"", "body"),
    ],
)
async def test_what_does_not_decode_reaches_no_handler(body: bytes, field: str) -> None:
    seen = Seen()
    async with client_of(build(seen)) as client:
        answer = await client.post(
            JSON_PATH, content=body, headers={"content-type": "application/json"}
        )
    refusal = answer.json()
    assert (answer.status_code, refusal["error_code"]) == (400, 40050)
    assert [problem["field"] for problem in refusal["fields"]] == [field]
    assert seen.bulk == []


@pytest.mark.parametrize("stated", ["text/plain", MSGPACK, ""])
async def test_another_media_type_or_none_is_refused(stated: str) -> None:
    async with client_of(build()) as client:
        answer = await client.post(
            JSON_PATH, content=b'{"rows": []}', headers={"content-type": stated} if stated else {}
        )
    assert (answer.status_code, answer.json()["error_code"]) == (415, 41550)


async def test_a_charset_does_not_matter_and_a_chunked_body_is_read_whole() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for part in (b'{"rows"', b": [[0,", b" 1]]}"):
            yield part

    async with client_of(build()) as client:
        answer = await client.post(
            JSON_PATH,
            content=chunks(),
            headers={"content-type": "application/json;charset=UTF-8"},
        )
    assert answer.json()["count"] == 1


async def test_errors_of_the_handler_and_wrong_methods_have_leadlines_format() -> None:
    async with client_of(build()) as client:
        refused = await client.post(JSON_PATH, json={"rows": [], "note": "refuse"})
        wrong = await client.get(JSON_PATH)
    assert (refused.status_code, refused.json()["error_code"]) == (503, 50350)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, OPTIONS")
