"""Who loses a right does not keep it with a request whose body arrives slowly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from leadline_common.access.caller import current_caller
from leadline_common.access.operations import Need
from leadline_common.access.rights import Action, Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import Authentication
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.bulk import read_body, send_body
from leadline_common.http.middleware import limit_body
from leadline_common.http.operation import Operation
from tests.unit.common.http_app import NewThing

TOKEN = new_token(bytes(RANDOM_BYTES))
WRITER = User((Grant.of_all(Role.OPERATOR),), (KeptToken(TOKEN.id, hash_of(TOKEN), 0),))
LOST: dict[str, Users] = {
    "its user": Users.of({}),
    "its token": Users.of({"alice": WRITER.without_token(TOKEN.id)}),
    "its right": Users.of({"alice": msgspec.structs.replace(WRITER, grants=())}),
}
STATUS = {"its user": 401, "its token": 401, "its right": 403}
BODY = b'{"name": "n"}'


@dataclass
class World:
    """A service with an endpoint of the framework, one without, and a clock."""

    users: Users = field(default_factory=lambda: Users.of({"alice": WRITER}))
    now_s: float = 0.0
    done: list[bytes] = field(default_factory=list)
    rights: list[bool] = field(default_factory=list)

    def app(self) -> ServiceApp:
        app = create_app(title="T", version="1", description="d", need_of=_operate)
        app.authentication = Authentication(
            required=True, users=lambda: self.users, monotonic_s=lambda: self.now_s
        )

        @app.post("/v1/parsed")
        async def parsed(new: NewThing) -> None:
            self._do(new.name.encode())

        async def octets(scope: Scope, receive: Receive, send: Send) -> None:
            limit_body(scope, 1_000)
            self._do(await read_body(receive))
            await send_body(send, b"{}", b"application/json")

        operation = Operation("POST", "/v1/octets", "octets", "Take octets", "", [], [], [])
        app.add_asgi_route(operation, _Endpoint(octets))
        return app

    def _do(self, what: bytes) -> None:
        self.done.append(what)
        self.rights.append(current_caller().access.allows(Action.ADMINISTER, "cluster"))

    async def post(self, path: str, meanwhile: Callable[[], None]) -> tuple[int, Any]:
        """Send a request in two parts; return its status, and the error's code."""
        sent: list[Any] = []
        parts = [(BODY[:5], True), (BODY[5:], False)]

        async def receive() -> Any:
            if not parts:
                return {"type": "http.disconnect"}
            if len(parts) == 1:
                meanwhile()
            body, more = parts.pop(0)
            return {"type": "http.request", "body": body, "more_body": more}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
        }
        await self.app()(scope, receive, send)
        body = json.loads(b"".join(one.get("body", b"") for one in sent) or b"null")
        return sent[0]["status"], (body or {}).get("error_code")


class _Endpoint:
    def __init__(self, serve: Any) -> None:
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send)


def _operate(operation: str) -> Need:
    del operation
    return Need(Action.OPERATE)


@pytest.mark.parametrize("path", ["/v1/parsed", "/v1/octets"])
@pytest.mark.parametrize("lost", LOST)
async def test_a_request_whose_sender_loses_it_within_the_body_does_nothing(
    path: str, lost: str
) -> None:
    world = World()

    def lose() -> None:
        world.users, world.now_s = LOST[lost], 2.0

    code = {401: 40150, 403: 40350}[STATUS[lost]]
    assert await world.post(path, lose) == (STATUS[lost], code)
    assert world.done == []


@pytest.mark.parametrize("path", ["/v1/parsed", "/v1/octets"])
async def test_what_a_slow_request_does_is_what_its_sender_may_do_then(path: str) -> None:
    world = World()

    def gain() -> None:
        more = msgspec.structs.replace(WRITER, grants=(Grant.of_all(Role.ADMIN),))
        world.users, world.now_s = Users.of({"alice": more}), 2.0

    assert (await world.post(path, gain))[0] == 200
    assert (len(world.done), world.rights) == (1, [True])
