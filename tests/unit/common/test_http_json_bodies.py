"""JSON that one parser accepts and the next cannot handle is refused where it arrives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from starlette.responses import StreamingResponse

from leadline_client.errors import InvalidRequest
from leadline_common.http.errors import error_response
from tests.unit.common.http_app import Seen, build, client_of

DIGITS = b"1" * 5_000
HOSTILE = {
    "lone surrogate": rb'"\ud800x"',
    "surrogates in the wrong order": rb'"\udc00\ud800"',
    "encoded surrogate": b'"\xed\xa0\x80"',
    "invalid UTF-8": b'"\xff"',
    "digits": DIGITS,
    "depth": b"[" * 40_000 + b"]" * 40_000,
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("stated", [JSON, {}], ids=["json", "untyped"])
async def test_a_parsed_route_refuses_a_hostile_body(name: str, stated: dict[str, str]) -> None:
    body = b'{"name": "n", "extra": ' + HOSTILE[name] + b"}"
    async with client_of(build()) as client:
        answer = await client.post("/v1/things", content=body, headers=stated)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error_code"] == InvalidRequest.code
    assert answer.json()["outcome"] == "refused"


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_bulk_route_refuses_a_hostile_body(name: str) -> None:
    seen = Seen()
    body = b'{"rows": [], "note": ' + HOSTILE[name] + b"}"
    async with client_of(build(seen)) as client:
        answer = await client.post("/v1/internal/countRows", content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert seen.bulk == []


@pytest.mark.parametrize("name", HOSTILE)
async def test_the_body_of_a_get_breaks_no_streamed_response_off(name: str) -> None:
    app = build()

    @app.get("/v1/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(3):
                await asyncio.sleep(0)
                yield b"part "

        return StreamingResponse(parts())

    async with client_of(app) as client:
        answer = await client.request("GET", "/v1/stream", content=HOSTILE[name], headers=JSON)
    assert (answer.status_code, answer.content) == (200, b"part part part ")


async def test_a_valid_pair_of_surrogates_and_a_body_in_parts_pass() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield rb'{"name": "\ud83d'
        yield rb'\ude00"}'

    async with client_of(build()) as client:
        answer = await client.post("/v1/things", content=parts(), headers=JSON)
    assert answer.json()["name"] == "😀"


@pytest.mark.parametrize("target", ["/v1/errors/%ff", "/v1/errors/%ed%a0%80", "/v1/wait?x=%80"])
async def test_a_target_that_is_not_utf8_is_refused(target: str) -> None:
    async with client_of(build()) as client:
        answer = await client.get(target)
    assert answer.status_code == 400
    assert "UTF-8" in answer.json()["message"]


def test_an_error_that_quotes_anything_can_be_answered() -> None:
    error = InvalidRequest("no \ud800", value=float("nan"), names={"\udfff", "x"}, raw=b"\xff")
    body = json.loads(bytes(error_response(error).body))
    assert body["message"] == r"no \ud800"
