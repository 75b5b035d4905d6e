"""`route`: a method of a Protocol declares the route that it serves."""

from __future__ import annotations

from typing import Annotated, Protocol

import httpx
import pytest
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict

from leadline_client.errors import UnknownTopic
from leadline_common.api.routes import TopicName, add_declared_routes, dry_run, route
from leadline_common.http.router import ServiceRouter


class Creation(BaseModel):
    """An answer."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"topic": "orders", "dry_run": False, "limit": 1}}
    )

    topic: str
    dry_run: bool
    limit: int = 0


class CreationBody(BaseModel):
    """A body."""

    dry_run: bool = False


class TopicAdministration(Protocol):
    """What serves the routes of these tests."""

    @route(
        "POST /topics/{topic}",
        "Create a topic",
        UnknownTopic,
        other=dry_run(Creation),
        status_code=201,
    )
    async def create(self, topic: TopicName, body: CreationBody) -> Creation:
        """Create it."""

    @route("GET /topics/{topic}", "Get a topic", UnknownTopic, defaults={"limit": 7})
    def read(self, topic: TopicName, limit: Annotated[int, Query(ge=1)]) -> Creation:
        """Return it."""


class EchoAdministration:
    """Returns the arguments of each request."""

    async def create(self, topic: str, body: CreationBody) -> Creation:
        return Creation(topic=topic, dry_run=body.dry_run)

    def read(self, topic: str, limit: int) -> Creation:
        return Creation(topic=topic, dry_run=False, limit=limit)


@pytest.fixture
def app() -> FastAPI:
    """An application with the declared routes."""
    application, router = FastAPI(), ServiceRouter()
    add_declared_routes(router, TopicAdministration, "topics")
    application.include_router(router)
    application.state.administration = EchoAdministration()
    return application


@pytest.fixture
def client(app: FastAPI) -> httpx.AsyncClient:
    """A client of the application."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def test_a_dry_run_has_the_other_status(client: httpx.AsyncClient) -> None:
    done = await client.post("/topics/orders", json={"dry_run": False})
    tried = await client.post("/topics/orders", json={"dry_run": True})

    assert (done.status_code, done.json()["dry_run"]) == (201, False)
    assert (tried.status_code, tried.json()["dry_run"]) == (200, True)


async def test_query_parameters_have_the_declared_defaults(client: httpx.AsyncClient) -> None:
    assert (await client.get("/topics/orders")).json()["limit"] == 7
    assert (await client.get("/topics/orders?limit=3")).json()["limit"] == 3
    assert (await client.get("/topics/orders?limit=0")).status_code == 422


def test_the_document_has_both_statuses_the_docstring_and_the_errors(app: FastAPI) -> None:
    operation = app.openapi()["paths"]["/topics/{topic}"]["post"]

    assert operation["summary"] == "Create a topic"
    assert operation["description"] == "Create it."
    assert {"200", "201", "404"} <= operation["responses"].keys()
    assert [parameter["name"] for parameter in operation["parameters"]] == ["topic"]
