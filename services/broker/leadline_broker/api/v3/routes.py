"""What the routes of the v3 API share: their context, their parameters and their documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from leadline_broker.api.v3.content_types import check_content_type
from leadline_broker.api.v3.errors import NOT_FOUND, ErrorResponse, V3Error, response_of
from leadline_broker.api.v3.errors import validation_error as error_of_validation
from leadline_broker.api.v3.layer import PREFIX
from leadline_broker.api.v3.links import Links, base_of
from leadline_broker.api.v3.models.cluster import CLUSTER_ID
from leadline_broker.api.v3.models.envelope import ListMetadata
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.engine import Engine
from leadline_client.errors import NoController
from leadline_common.http.errors import Responses
from leadline_common.http.forward import Forward, Forwarder
from leadline_common.http.long_bodies import encode_list, encode_model
from leadline_common.http.router import ServiceRouter
from leadline_common.http.service_queries import ServiceQueries

_CHUNK: Final = 200
"""How many items of a list are encoded before other requests get their turn."""

ClusterId = Annotated[str, Path(description="The cluster's id", examples=[CLUSTER_ID])]
TopicName = Annotated[str, Path(description="The topic's name", examples=["orders"])]
PartitionId = Annotated[int, Path(description="The partition's number", examples=[0])]
BrokerId = Annotated[int, Path(description="The broker's id", examples=[1])]


@dataclass(frozen=True, slots=True, kw_only=True)
class V3Context:
    """What the routes need of the broker.

    `advertised_url()` is "" unless one is configured. `engine()` raises BrokerFenced while the
    broker starts. `controller` and `coordinator` ask the active ones for the caller; `brokers`
    asks other brokers for this one. `now_ms()` is the time in Unix ms.
    """

    state: BrokerState
    metadata: ClusterMetadataCache
    cluster_id: Callable[[], str]
    advertised_url: Callable[[], str]
    engine: Callable[[], Engine]
    controller: ServiceQueries
    coordinator: ServiceQueries
    brokers: Forwarder
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster that a request names, with the links for its caller."""

    context: V3Context
    links: Links
    idempotency: dict[str, str]

    def idempotency_of(self, part: str) -> dict[str, str]:
        """Return the header for one of several changes that this request consists of.

        The controller takes a key for one change. The same part of a repeated request has the same.
        """
        return {
            name: sha256(f"{key}\0{part}".encode()).hexdigest()
            for name, key in self.idempotency.items()
        }

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self.links.cluster_id

    @property
    def metadata(self) -> ClusterMetadataCache:
        """The cluster's metadata.

        Raises:
            NoController: this broker has none yet; an empty list would say that nothing exists.

        """
        if not self.context.metadata.version:
            raise NoController("this broker has no metadata from a controller yet")
        return self.context.metadata


async def get_cluster(request: Request, cluster_id: ClusterId) -> ClusterView:
    """Return the cluster of the path, which must be that of this broker.

    Raises:
        V3Error: it is another one.

    """
    context: V3Context = request.app.state.v3
    if cluster_id != context.cluster_id():
        raise V3Error(NOT_FOUND, f"cluster {cluster_id} is not served here")
    links = Links(base_of(request, context.advertised_url()), cluster_id)
    key = request.headers.get("idempotency-key")
    return ClusterView(context, links, {"Idempotency-Key": key} if key else {})


InCluster = Annotated[ClusterView, Depends(get_cluster)]


class V3Route(APIRoute):
    """A route whose errors are those of the v3 API."""

    def get_route_handler(self) -> Forward:
        """Return the handler of the route, with its own errors turned into responses."""
        handle = super().get_route_handler()

        async def handle_errors(request: Request) -> Response:
            has_body = _has_body(request)
            try:
                if has_body and self.body_field is not None:
                    check_content_type(request.headers.get("content-type", ""))
                return await handle(request)
            except RequestValidationError as error:
                return response_of(error_of_validation(error, has_body=has_body))
            except V3Error as error:
                return response_of(error)

        return handle_errors


def _has_body(request: Request) -> bool:
    headers = request.headers
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def v3_router(tag: str) -> ServiceRouter:
    """Return a router for the resources of one cluster."""
    prefix = f"{PREFIX}/clusters/{{cluster_id}}"
    return ServiceRouter(prefix=prefix, tags=[tag], route_class=V3Route)


MEANINGS: Final[dict[int | str, tuple[str, str]]] = {
    400: ("V3BadRequest", "The request is malformed (400) or refused (40002)"),
    404: ("V3NotFound", "There is no such cluster or resource (404), topic (40403) or route"),
    413: ("V3TooLarge", "The body is too large (413)"),
    415: ("V3UnsupportedType", "The body is no JSON (415)"),
    422: ("V3Unprocessable", "The body is missing (42206), or has an unknown member (422)"),
}
OTHER_ERRORS: Final = (
    "V3OtherError",
    (
        "Any other error: 40101, 40301, 429, 500, 50002, 50003 (retriable) or 50302; its message "
        "and the header X-Leadline-Outcome say so if the outcome is unknown"
    ),
)


def errors_of(*statuses: int) -> Responses:
    """Return the documented errors of an operation: by these statuses, and all others."""
    named: dict[int | str, tuple[str, str]] = {one: MEANINGS[one] for one in statuses}
    named["default"] = OTHER_ERRORS
    return {
        status: {"model": ErrorResponse, "description": meaning, "x-component": name}
        for status, (name, meaning) in named.items()
    }


READ: Final = errors_of(400, 404)
WRITE: Final = errors_of(400, 404)
WRITE_BODY: Final = errors_of(400, 404, 413, 415, 422)


def also(status: int, model: type[BaseModel], meaning: str, responses: Responses) -> Responses:
    """Return the documented responses of an operation with another one."""
    return {status: {"model": model, "description": meaning}} | responses


async def list_response(kind: str, metadata: ListMetadata, items: Iterable[BaseModel]) -> Response:
    """Return the response with a list; long ones are encoded a part at a time."""
    data = await encode_list(items, encode_model, _CHUNK)
    members = kind.encode(), encode_model(metadata), data
    body = b'{"kind":"%s","metadata":%s,"data":%s}' % members
    return Response(body, media_type="application/json")


def documented(
    operation: str, summary: str, responses: Responses, **options: Any
) -> dict[str, Any]:
    """Return the options of a route with its operation id, summary and errors."""
    return {"name": operation, "summary": summary, "responses": responses, **options}
