"""Which listener serves which routes, and who may call the internal ones."""

from __future__ import annotations

import httpx
import msgspec
import pytest
import structlog
from starlette.types import ASGIApp

from leadline_common.http.bulk import bulk_route
from leadline_common.http.health import OPERATIONS
from leadline_common.http.operation import INTERNAL
from leadline_common.identity import ServiceIdentity
from tests.support.services.identities import served_to
from tests.unit.common.http_app import CALLER, BulkRequest, BulkResponse, Seen, build

ROUTE = "/v1/internal/countRows"
ROWS = msgspec.json.encode(BulkRequest([]))
JSON = {"Content-Type": "application/json"}


def client(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service")


@pytest.mark.parametrize("path", [ROUTE, f"{ROUTE}%0A", ROUTE.replace("/v1", "/%76%31")])
async def test_the_public_listener_does_not_know_internal_routes(path: str) -> None:
    """A router's patterns end with `$`, which matches before a line feed, too."""
    seen = Seen()
    async with client(build(seen)) as public:
        answer = await public.post(path, content=ROWS, headers=JSON)
        other = await public.post("/v1/no-such-route", content=ROWS, headers=JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (404, other.json()["error_code"])
    assert not seen.bulk


@pytest.mark.parametrize("path", ["/v1/things/1", "/metrics", "/docs", "/openapi.json", "/readyz"])
async def test_the_internal_listener_knows_nothing_else_but_health(path: str) -> None:
    app = build()
    async with client(served_to(CALLER, app, [path, "/healthz"])) as internal:
        assert (await internal.get(path)).status_code == 404
        assert (await internal.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "caller", [ServiceIdentity("broker", 3), ServiceIdentity("controller", CALLER.id)]
)
async def test_a_service_that_claims_to_be_another_changes_nothing(caller: ServiceIdentity) -> None:
    seen = Seen()
    with structlog.testing.capture_logs() as logged:
        async with client(served_to(caller, build(seen), [ROUTE])) as internal:
            answer = await internal.post(ROUTE, content=ROWS, headers=JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (403, 40350)
    line = {"caller": str(caller), "claimed": str(CALLER), "path": ROUTE}
    assert {"event": "false identity", "log_level": "warning", **line} in logged
    assert (answer.json()["outcome"], seen.bulk) == ("refused", [])


@pytest.mark.parametrize(
    ("tag", "speaker"),
    [(INTERNAL, None), (OPERATIONS, lambda _: CALLER)],
    ids=["internal", "public"],
)
async def test_a_route_that_does_not_say_who_may_call_it_fails_the_start(
    tag: str, speaker: object
) -> None:
    async def handle(request: BulkRequest) -> BulkResponse:
        return BulkResponse(len(request.rows), "c")

    with pytest.raises(ValueError, match="/v1/internal/unguarded"):
        bulk_route(
            build(),
            "/v1/internal/unguarded",
            handle,
            BulkRequest,
            BulkResponse,
            tag=tag,
            name="unguarded",
            summary="Unguarded",
            description="Unguarded.",
            speaker=speaker,  # type: ignore[arg-type]  # either is refused before it is called
        )
