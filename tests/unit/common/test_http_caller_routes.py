"""What `GET /v1/me` tells a caller of itself."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from leadline_common.access.operations import NEEDS
from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import Authentication
from leadline_common.http.app import create_app

TOKEN = new_token(bytes(RANDOM_BYTES))


async def me(*grants: Grant, required: bool = True) -> dict[str, Any]:
    app = create_app(title="t", version="1", description="-")
    users = Users.of({"ada": User(grants, (KeptToken(TOKEN.id, hash_of(TOKEN), 0),))})
    app.authentication = Authentication(required=required, users=lambda: users)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as client:
        answer = await client.get("/v1/me")
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


async def test_without_authentication_everybody_may_do_everything() -> None:
    found = await me(required=False)
    assert (found["user"], found["authenticated"]) == (None, False)
    assert (found["roles"], found["grants"]) == ([], [])
    assert found["operations"] == sorted(NEEDS)


async def test_a_user_is_told_its_grants_and_what_they_allow() -> None:
    found = await me(Grant.of_all(Role.VIEWER))
    assert (found["user"], found["authenticated"], found["roles"]) == ("ada", True, ["viewer"])
    assert found["grants"] == [{"role": "viewer", "topics": ["*"], "groups": ["*"]}]
    assert {"read_events", "list_tasks", "read_topic", "read_group"} <= set(found["operations"])
    assert not {"create_topic", "fetch", "read_audit", "drain"} & set(found["operations"])


@pytest.mark.parametrize(
    ("operation", "allowed"), [("delete_topic", True), ("drain", False), ("read_events", False)]
)
async def test_a_role_for_some_names_allows_nothing_on_the_cluster(
    operation: str, allowed: bool
) -> None:
    found = await me(Grant(Role.OPERATOR, ("own*",), ("own*",)))
    assert (operation in found["operations"]) is allowed
