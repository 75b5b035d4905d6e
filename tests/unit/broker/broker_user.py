"""A user of a broker that asks for tokens; the rights may change while a request runs."""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx

from leadline_broker.api.app import build_app
from leadline_common.access.rights import Grant
from leadline_common.access.tokens import KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import Authentication
from leadline_common.metrics import Metrics
from tests.unit.broker.small_cluster import SmallCluster


class BrokerUser:
    """A user of broker 1 of a cluster, who shows a token and has `grants`."""

    def __init__(self, cluster: SmallCluster, *grants: Grant) -> None:
        self._app = build_app(cluster.brokers[1], request_max_bytes=1 << 20, metrics=Metrics())
        self._token = new_token(bytes(range(38)))
        self._app.authentication = Authentication(
            required=True, users=lambda: self._users, monotonic_s=count(0.0, 10.0).__next__
        )
        self._users = self._with(*grants)

    def _with(self, *grants: Grant) -> Users:
        kept = KeptToken(self._token.id, hash_of(self._token), 0)
        return Users.of({"alice": User(grants=grants, tokens=(kept,))})

    def lose_rights(self) -> None:
        """Take all grants away."""
        self._users = self._with()

    def lose_token(self) -> None:
        """Take the user away, with the token."""
        self._users = Users()

    async def request(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        """Send a request with the token."""
        transport = httpx.ASGITransport(self._app)
        shown = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
            return await http.request(method, path, headers=shown, timeout=60, **options)
