"""Requests that are refused because of who sent them count, whichever layer refuses them."""

from __future__ import annotations

import httpx
import pytest

from leadline_client.errors import Forbidden
from leadline_common.access.caller import (
    require,
    require_all,
    require_matches,
    require_on_cluster,
)
from leadline_common.access.rights import Action, Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import Authentication
from leadline_common.http.app import ServiceApp, create_app
from tests.unit.common.http_app import anybody

TOKEN = new_token(bytes(RANDOM_BYTES))
CHECKS = {
    "names": lambda: require(Action.WRITE, "topic", ["own", "foreign"]),
    "all": lambda: require_all(Action.WRITE, "topic"),
    "pattern": lambda: require_matches(Action.WRITE, "topic", "o.*"),
    "cluster": lambda: require_on_cluster(Action.ADMINISTER),
    "allowed": lambda: require(Action.WRITE, "topic", ["own"]),
}


def app_with_checks() -> ServiceApp:
    """Return an application whose routes check what their caller may do."""
    app = create_app(title="T", version="1", description="d", need_of=anybody)

    @app.post("/v1/checks/{check}")
    async def run(check: str) -> dict[str, str]:
        CHECKS[check]()
        return {}

    own = Grant(Role.PRODUCER, ("own",), ())
    users = Users.of({"ada": User((own,), (KeptToken(TOKEN.id, hash_of(TOKEN), 0),))})
    app.authentication = Authentication(required=True, users=lambda: users)
    return app


async def ask(app: ServiceApp, check: str) -> int:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return (await client.post(f"/v1/checks/{check}", headers=headers)).status_code


def refused(app: ServiceApp) -> float | None:
    return app.metrics.registry.get_sample_value(
        "leadline_access_refused_requests_total", {"reason": Forbidden.__name__}
    )


@pytest.mark.parametrize("check", sorted(CHECKS.keys() - {"allowed"}))
async def test_what_a_route_refuses_by_the_body_counts(check: str) -> None:
    app = app_with_checks()

    assert await ask(app, check) == 403
    assert refused(app) == 1


async def test_what_a_route_allows_does_not_count() -> None:
    app = app_with_checks()

    assert await ask(app, "allowed") == 200
    assert refused(app) is None
