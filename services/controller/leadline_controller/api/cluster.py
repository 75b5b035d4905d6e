"""Routes about the cluster: who rules, who is live, who leads what."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from leadline_client.errors import NoController, NotFound
from leadline_common.http import Document, error_responses
from leadline_controller.api import models, views
from leadline_controller.runtime.service import ControllerService

TAG = "cluster"
_MAX_WAIT_MS = 60_000
_DURATION = r"^\d{1,7}(ms|s)?$"

_METADATA_EXAMPLE = {
    "cluster_id": "3f0c6cbe4e6b4f6f8a8e0f0d8f4b6f11",
    "version": 1042,
    "controller": {"id": 1, "url": "http://127.0.0.1:8081", "epoch": 3},
    "brokers": [{"id": 1, "url": "http://127.0.0.1:9091", "rack": None, "incarnation": 1}],
    "topics": {
        "orders": {
            "topic_id": "b1946ac92492d2347c6235b4d2611184",
            "partitions": [[0, 1, 5, [1], [1]]],
        }
    },
}


class MetadataBroker(BaseModel):
    """A live broker; `incarnation` rises with every start of it."""

    id: int
    url: str
    rack: str | None
    incarnation: int


class MetadataTopic(BaseModel):
    """A topic: rows of [partition, leader, leader_epoch, [isr], [replicas]]; leader -1 is none."""

    topic_id: str
    partitions: list[tuple[int, int, int, list[int], list[int]]]


class Metadata(BaseModel):
    """One consistent snapshot; `version` rises with every change and never goes back."""

    cluster_id: str
    version: int
    controller: models.ActiveController | None
    brokers: list[MetadataBroker]
    topics: dict[str, MetadataTopic]


def cluster_routes(controller: ControllerService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=[TAG])
    _add_overview(router, controller)
    _add_metadata(router, controller)
    _add_brokers(router, controller)
    return router


def _add_overview(router: APIRouter, controller: ControllerService) -> None:
    @router.get("/controller", summary="Which controller is this, and which one rules?")
    async def read_controller() -> models.ThisController:
        """Answered by every controller itself, active or standby."""
        return models.ThisController(
            id=controller.id,
            url=controller.url,
            active=controller.is_active,
            controller=views.controller_view(controller.active),
        )

    @router.get(
        "/cluster", summary="The cluster in numbers", responses=error_responses(NoController)
    )
    async def read_cluster() -> models.Cluster:
        """Count brokers, topics, partitions, and partitions that lack something."""
        return views.cluster_view(controller.image(), controller.cluster_id(), controller.active)


def _add_metadata(router: APIRouter, controller: ControllerService) -> None:
    answers: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/json": {"example": _METADATA_EXAMPLE}}},
        304: {"description": "The caller has this version already (`If-None-Match`)"},
    }

    @router.get(
        "/metadata",
        summary="Who leads what",
        response_model=Metadata,
        responses=answers | error_responses(NoController),
    )
    async def read_metadata(
        request: Request,
        topics: Annotated[
            str | None,
            Query(description="Only these topics, separated by commas", examples=["orders"]),
        ] = None,
        after: Annotated[
            int | None, Query(ge=0, description="Wait for a version newer than this one")
        ] = None,
        wait: Annotated[
            str,
            Query(pattern=_DURATION, description="How long to wait: `30s`, `500ms`; at most 60 s"),
        ] = "0s",
    ) -> Response:
        """Read one consistent snapshot, with a strong ETag.

        With `after`, the answer waits for a newer version, at most `wait`, and then is
        whatever is current. A topic that does not exist is absent. Brokers serve the
        same document.
        """
        view = await controller.metadata(after, _milliseconds(wait))
        names = topics.split(",") if topics is not None else None
        return Document(view.document(names), view.etag()).answer(request)


def _milliseconds(duration: str) -> int:
    number = int(duration.rstrip("ms"))
    return min(number if duration.endswith("ms") else 1000 * number, _MAX_WAIT_MS)


def _add_brokers(router: APIRouter, controller: ControllerService) -> None:
    @router.get("/brokers", summary="The live brokers", responses=error_responses(NoController))
    async def list_brokers() -> models.Brokers:
        """List the live brokers, by id, with what each leads and holds."""
        image = controller.image()
        found = [image.brokers[broker_id] for broker_id in sorted(image.brokers)]
        return models.Brokers(brokers=views.broker_views(image, found))

    @router.get(
        "/brokers/{broker_id}",
        summary="One live broker",
        responses=error_responses(NoController, NotFound),
    )
    async def read_broker(
        broker_id: Annotated[int, Path(ge=0, examples=[1])],
    ) -> models.Broker:
        """Read a live broker, with what it leads and holds."""
        return views.broker_views(controller.image(), [controller.broker(broker_id)])[0]
