"""A body with a very long list is encoded in turns, and the same as at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Protocol

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from leadline_common.api.routes import add_declared_routes, route
from leadline_common.http.long_bodies import encode_long, encode_record
from leadline_common.http.router import ServiceRouter
from leadline_common.slices import SLICE
from tests.support.turns import answer_and_turns


class Row(BaseModel):
    """A row of the list."""

    name: str
    numbers: list[int]
    maybe: int | None = None


class Body(BaseModel):
    """A body with a list between other members."""

    before: str
    rows: list[Row]
    after: dict[str, int]
    words: list[str]


def body_of(rows: int) -> Body:
    return Body(
        before='}"{',
        rows=[Row(name=f'"é{n}', numbers=[n, -n], maybe=n % 2 or None) for n in range(rows)],
        after={"rows": 1},
        words=["w"] * (2 * SLICE),
    )


@pytest.mark.parametrize("rows", [0, 1, SLICE])
async def test_a_body_that_is_not_long_is_left_to_the_framework(rows: int) -> None:
    assert await encode_long(body_of(rows)) is None


async def test_a_long_body_is_encoded_in_turns_as_it_is_at_once() -> None:
    body = body_of(5 * SLICE + 1)
    encoded, turns = await answer_and_turns(encode_long(body))
    assert encoded == body.model_dump_json().encode()
    assert turns > 5


@dataclass(frozen=True)
class Report:
    """As `Body`, of plain Python."""

    before: str
    rows: list[dict[str, int]]
    after: float | None = None


class Struct(msgspec.Struct, frozen=True):
    """As `Report`, of msgspec."""

    before: str
    rows: list[dict[str, int]]
    after: float | None = None


@pytest.mark.parametrize("kind", [Report, Struct])
@pytest.mark.parametrize("rows", [0, 1, SLICE, 5 * SLICE + 1])
async def test_a_record_is_encoded_in_turns_as_it_is_at_once(
    kind: type[Report | Struct], rows: int
) -> None:
    record = kind('"rows":[]', [{"n": n} for n in range(rows)], 0.5)
    encoded, turns = await answer_and_turns(encode_record(record, "rows"))
    assert encoded == msgspec.json.encode(record)
    assert turns >= rows / SLICE


class Routes(Protocol):
    """Two routes with the same body."""

    @route("GET /long", "A long body", etag_of=lambda body: body.before[:1])
    async def long(self) -> Body:
        """Return it."""

    @route("POST /new", "A long body that is new", status_code=201)
    async def new(self) -> Body:
        """Return it."""


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async def answer() -> Body:
        return body_of(SLICE + 1)

    app, router = FastAPI(), ServiceRouter()
    add_declared_routes(router, Routes, "tag")
    app.include_router(router)
    app.state.administration = SimpleNamespace(long=answer, new=answer)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as made:
        yield made


async def test_a_route_answers_with_it_as_with_any_other(client: httpx.AsyncClient) -> None:
    read, made = await client.get("/long"), await client.post("/new")

    assert (read.status_code, made.status_code) == (200, 201)
    assert read.headers["etag"] == '"}"'
    assert read.headers["content-type"] == made.headers["content-type"] == "application/json"
    assert read.content == made.content == body_of(SLICE + 1).model_dump_json().encode()
