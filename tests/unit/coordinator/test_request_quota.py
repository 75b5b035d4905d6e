"""A coordinator limits the requests of users by the setting that it was started with."""

from __future__ import annotations

import httpx

from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.clock import SystemClock
from leadline_common.http.access import Authentication
from leadline_common.quotas.bucket import BURST_S
from leadline_common.settings import CoordinatorSettings
from leadline_coordinator.api.app import build_app
from leadline_coordinator.runtime.context import CoordinatorMetrics
from leadline_coordinator.runtime.elector import CoordinatorDependencies, CoordinatorElector
from leadline_coordinator.runtime.ports import CoordinatorStore
from leadline_coordinator.runtime.service import CoordinatorService
from tests.support.services.coordinators import KnownEnds


async def no_store() -> CoordinatorStore:
    raise NotImplementedError


async def test_a_user_without_a_quota_has_the_default() -> None:
    settings = CoordinatorSettings(coordinator_id=1, quota_requests_per_s=1)
    dependencies = CoordinatorDependencies(no_store, KnownEnds(), SystemClock(), str)
    elector = CoordinatorElector(settings, "http://coordinator", dependencies, CoordinatorMetrics())
    app = build_app(CoordinatorService(elector), elector.metrics, 1 << 20)
    token = new_token(bytes(RANDOM_BYTES))
    user = User((Grant.of_all(Role.VIEWER),), (KeptToken(token.id, hash_of(token), 0),))
    users = Users.of({"ada": user})
    app.authentication = Authentication(required=True, users=lambda: users)
    app.quotas.users = lambda: users
    app.quotas.monotonic_ms = lambda: 0
    shown = {"Authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://c", headers=shown) as http:
        found = [(await http.get("/v1/coordinator")).status_code for _ in range(BURST_S + 1)]
    assert found == [200] * BURST_S + [429]
