"""Routes refuse parameters that the framework would ignore, or would read as others."""

from __future__ import annotations

from typing import Annotated, Literal

import httpx
import pytest
from fastapi import Depends, Path, Query

from leadline_client.errors import InvalidRequest
from leadline_common.access.operations import CONNECT
from leadline_common.http.app import create_app
from leadline_common.http.router import ServiceRouter
from tests.unit.common.http_app import client_of

Answer = dict[str, str]


async def page(size: Annotated[int, Query(ge=1)] = 7) -> int:
    return size


@pytest.fixture
def client() -> httpx.AsyncClient:
    """A client of a service with one strict route."""
    router = ServiceRouter(prefix="/v1")

    @router.get("/parts/{name}/{number}", summary="Get a part")
    async def part(
        name: str,
        number: Annotated[int, Path()],
        size: Annotated[int, Depends(page)],
        after: Annotated[int | None, Query()] = None,
        order: Annotated[Literal["up", "down"], Query()] = "up",
    ) -> Answer:
        """Return what was understood."""
        return {"part": f"{name} {number} {size} {after} {order}"}

    app = create_app(
        title="Parts",
        version="1",
        description="Parts.",
        tags=[],
        checks=[],
        need_of=lambda _: CONNECT,
    )
    app.add_routes_of(router)
    return client_of(app)


@pytest.mark.parametrize(
    ("path", "understood"),
    [
        ("/v1/parts/a/1", "a 1 7 None up"),
        ("/v1/parts/+1/0?size=2&after=-3&order=down", "+1 0 2 -3 down"),
    ],
)
async def test_what_is_declared_is_understood(
    client: httpx.AsyncClient, path: str, understood: str
) -> None:
    answer = await client.get(path)

    assert (answer.status_code, answer.json()) == (200, {"part": understood})


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/parts/a/1?sizes=3", "query.sizes"),
        ("/v1/parts/a/1?name=b", "query.name"),
        ("/v1/parts/a/1?size=2&size=2", "query.size"),
        ("/v1/parts/a/1?order=up&order=down", "query.order"),
        ("/v1/parts/a/1?size=%2B2", "query.size"),
        ("/v1/parts/a/1?size=1_0", "query.size"),
        ("/v1/parts/a/1?size=%202", "query.size"),
        ("/v1/parts/a/1?size=2.0", "query.size"),
        ("/v1/parts/a/1?after=", "query.after"),
        ("/v1/parts/a/%2B1", "path.number"),
        ("/v1/parts/a/1_0", "path.number"),
        ("/v1/parts/a/1.0", "path.number"),
    ],
)
async def test_anything_else_is_refused(client: httpx.AsyncClient, path: str, field: str) -> None:
    answer = await client.get(path)

    assert (answer.status_code, answer.json()["error_code"]) == (400, InvalidRequest.code)
    assert answer.json()["fields"][0]["field"] == field
