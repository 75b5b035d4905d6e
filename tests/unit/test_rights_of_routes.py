"""Every route of every service, asked by every role, for its own and for foreign topics and groups.

The table says by hand what `leadline_common.access.operations` should come to. Requests have no
valid body, so that nothing is done: whatever is neither 401 nor 403 was let through.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import structlog
from fastapi.routing import iter_route_contexts
from starlette.routing import WebSocketRoute

import leadline_broker.main
import leadline_controller.main
import leadline_controller.runtime.service
import leadline_coordinator.main
from leadline_common.access.operations import INTERNAL_OPERATIONS
from leadline_common.access.principals import Principal
from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, Token, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import Authentication
from leadline_common.http.app import ServiceApp
from leadline_common.http.internal import PEER_KEY
from leadline_common.http.public_tls import CLIENT_CERTIFICATE_KEY
from leadline_common.identity import KINDS, Kind, ServiceIdentity

SERVICES: Final = {
    "broker": leadline_broker.main.openapi_app,
    "controller": leadline_controller.main.openapi_app,
    "coordinator": leadline_coordinator.main.openapi_app,
}
FORWARDERS: Final[dict[str, set[Kind]]] = {
    "broker": set(),
    "controller": {"broker", "controller"},
    "coordinator": {"broker", "coordinator"},
}
"""Who forwards requests to whom."""
ALLOWED: Final = {
    # By whom: viewer, producer, consumer, operator, Auditor (A), administrator (X).
    "vpcoAX": {
        "documentation", "find_coordinator", "list_brokers", "read_broker", "read_cluster",
        "read_controller", "read_coordinator", "this_broker", "what_if_assignment",
        "what_if_election", "what_if_placement", "what_if_reassignment", "bulk_offsets",
        "epoch_end", "list_partitions", "list_topics", "partition_offsets", "read_metadata",
        "read_topic", "read_topic_configs",
    },
    "vcoAX": {"list_groups", "read_group", "read_lag", "read_offsets"},
    "voAX": {
        "can_stop", "list_broker_failures", "list_failed_brokers", "list_reassignments",
        "list_tasks", "load", "read_broker_configs", "read_cluster_configs", "read_events",
        "read_metrics", "read_plan", "read_task", "replicas",
    },
    "pX": {
        "allocate_producer_id", "drop_staged", "produce", "produce_to_topic", "publish", "stage",
    },
    "cX": {
        "fetch", "channel", "commit_offsets", "join_group", "leave_group", "poll_consumer",
        "sync_consumer",
    },
    "oX": {
        "add_partitions", "alter_topic_configs", "cancel_reassignment", "create_topic",
        "delete_topic", "elect", "reassign", "remove_partitions", "delete_group", "delete_offsets",
        "evict_member", "rebalance_group", "reset_offsets", "alter_broker_configs",
        "alter_cluster_configs", "apply_plan", "cancel_task", "change_task", "drain",
        "forget_broker", "make_plan",
    },
    "AX": {
        "export_audit", "export_audit_range", "export_groups", "export_table", "read_audit",
        "read_audit_entry", "read_audit_head", "read_partition_history", "read_past_tasks",
    },
    "X": {
        "create_token", "create_user", "delete_user", "list_users", "read_user", "revoke_token",
        "set_grants", "set_quotas",
    },
}  # fmt: skip
EVERYBODY: Final = {"healthz", "readyz"}
OF_THE_CLUSTER: Final = (ALLOWED["voAX"] | ALLOWED["AX"] | ALLOWED["X"]) | {
    "alter_broker_configs", "alter_cluster_configs", "apply_plan", "cancel_task", "change_task",
    "drain", "forget_broker", "make_plan",
}  # fmt: skip
"""What takes a role for all topics and groups."""
LETTERS: Final = dict(zip("vpcoAX", Role, strict=True))
OWN, FOREIGN = "own-1", "foreign-1"


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many endpoints fail here, because no service runs: wait for none, and report nothing."""
    monkeypatch.setattr(leadline_controller.runtime.service, "CATCH_UP_S", 0)
    with structlog.testing.capture_logs():
        yield


def token_of(number: int) -> Token:
    return new_token(bytes([number]) * RANDOM_BYTES)


WHOLE = {role: token_of(number) for number, role in enumerate(Role)}
PART = {role: token_of(100 + number) for number, role in enumerate(Role)}
"""The tokens of users with a role for everything, and for what begins with `own`."""


def known_users() -> Users:
    def user(token: Token, grant: Grant) -> User:
        return User((grant,), (KeptToken(token.id, hash_of(token), 0),))

    whole = {f"{role}": user(token, Grant.of_all(role)) for role, token in WHOLE.items()}
    part = {
        f"{role}-own": user(token, Grant(role, ("own*",), ("own*",)))
        for role, token in PART.items()
    }
    return Users.of(whole | part)


def app_of(service: str) -> ServiceApp:
    app = SERVICES[service]()
    app.authentication = Authentication(
        required=True, users=known_users, forwarders=frozenset(FORWARDERS[service])
    )
    return app


def routes_of(app: ServiceApp) -> Iterator[tuple[str, str, str]]:
    """Yield operation, method and path template of each route."""
    for context in iter_route_contexts(list(app.router.routes)):
        is_socket = isinstance(context.original_route, WebSocketRoute)
        methods = {"WEBSOCKET"} if is_socket else (context.methods or {"GET"}) - {"HEAD"}
        for method in methods:
            yield str(context.name), method, context.path_format or ""


async def status_of(
    app: ServiceApp, method: str, path: str, token: Token | None, **extra: Any
) -> int:
    """Return the status of the answer to one request or handshake; 101 for an accepted one."""
    found: list[int] = []
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    kind = "http"
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]
    if method == "WEBSOCKET":
        kind, messages = "websocket", [{"type": "websocket.connect"}]
        extra["extensions"] = {"websocket.http.response": {}}
    else:
        extra["method"] = method

    async def receive() -> Any:
        end = {"type": f"{kind}.disconnect", "code": 1000}
        return messages.pop() if messages else end

    async def send(message: Any) -> None:
        if message["type"].endswith("response.start"):
            found.append(message["status"])
        elif message["type"] == "websocket.accept":
            found.append(101)

    scope = {
        "type": kind,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        **extra,
    }
    await app(scope, receive, send)
    return found[0]


def filled(template: str, name: str) -> str:
    values = {"topic": name, "group": name, "partition": "0", "epoch": "0", "broker_id": "999"}
    return template.format_map(_Filling(values)).replace("//", "/")


class _Filling(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "x"


def letters_of(operation: str) -> str:
    return next((letters for letters, named in ALLOWED.items() if operation in named), "")


def test_the_table_names_every_operation_once() -> None:
    named = [one for operations in ALLOWED.values() for one in operations]
    assert len(named) == len(set(named))
    found = {name for service in SERVICES for name, _, _ in routes_of(app_of(service))}
    assert found == {*named, *EVERYBODY, *INTERNAL_OPERATIONS}


@pytest.mark.parametrize("service", SERVICES)
async def test_every_route_lets_its_roles_through_and_nobody_else(service: str) -> None:
    app = app_of(service)
    wrong = []
    for operation, method, template in routes_of(app):
        if operation in INTERNAL_OPERATIONS | EVERYBODY:
            continue
        by_name = "{topic}" in template or "{group}" in template
        of_cluster = operation in OF_THE_CLUSTER
        for letter, role in LETTERS.items():
            may = letter in letters_of(operation)
            expected = {
                (WHOLE[role], OWN): may,
                (WHOLE[role], FOREIGN): may,
                (PART[role], OWN): may and not of_cluster,
                (PART[role], FOREIGN): may and not of_cluster and not by_name,
            }
            for (token, name), allowed in expected.items():
                status = await status_of(app, method, filled(template, name), token)
                if (status != 403) is not allowed or status == 401:
                    wrong.append((operation, role, name, token in WHOLE.values(), status))
    assert not wrong


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("token", [None, token_of(99)], ids=["no token", "unknown token"])
async def test_who_shows_nothing_valid_finds_only_health(service: str, token: Token | None) -> None:
    app = app_of(service)
    for operation, method, template in routes_of(app):
        status = await status_of(app, method, filled(template, OWN), token)
        assert (status == 401) is (operation not in EVERYBODY), (operation, status)
    for method, path in (
        ("GET", "/nothing"),
        ("OPTIONS", "/v1/topics"),
        ("GET", "//v1/topics"),
        ("GET", "/v1/topics/"),
        ("GET", "/docs/assets/../../v1/topics"),
        ("GET", "/HEALTHZ"),
        ("POST", "/healthz"),
        ("WEBSOCKET", "/healthz"),
    ):
        assert await status_of(app, method, path, token) in (401, 404), path


@pytest.mark.parametrize("service", SERVICES)
async def test_nobody_but_a_service_names_a_principal(service: str) -> None:
    """The header of the internal listener means nothing on the public one."""
    app = app_of(service)
    admin = [(b"host", b"127.0.0.1"), (b"x-leadline-principal", b"user:admin")]
    path = "/v1/coordinator" if service == "coordinator" else "/metrics"
    assert await status_of(app, "GET", path, None, headers=admin) == 401
    for kind in KINDS:
        other = {PEER_KEY: ServiceIdentity(kind, 3)}
        status = await status_of(app, "GET", path, None, headers=admin, **other)
        assert (status not in (401, 403)) is (kind in FORWARDERS[service]), kind
    if service == "broker":
        return
    peer = {PEER_KEY: ServiceIdentity("broker", 3)}
    unknown = [(b"host", b"127.0.0.1"), (b"x-leadline-principal", b"user:nobody")]
    assert await status_of(app, "GET", path, None, headers=unknown, **peer) == 403
    for text in (b"", b"broker:1", b"user:", b"root"):
        malformed = [(b"host", b"127.0.0.1"), (b"x-leadline-principal", text)]
        assert await status_of(app, "GET", path, None, headers=malformed, **peer) == 401
    nobody = [(b"host", b"127.0.0.1"), (b"x-leadline-principal", b"anonymous")]
    assert await status_of(app, "GET", path, None, headers=nobody, **peer) == 401


@pytest.mark.parametrize(
    ("name", "status"), [("admin", 200), ("viewer", 200), ("nobody", 403), ("no name", 401)]
)
async def test_a_client_certificate_names_a_user(name: str, status: int) -> None:
    app = app_of("broker")
    shown = {CLIENT_CERTIFICATE_KEY: name}
    assert await status_of(app, "GET", "/metrics", None, **shown) == status
    # A token goes first: what it says is not mixed with the certificate.
    assert await status_of(app, "GET", "/metrics", token_of(99), **shown) == 401
    assert await status_of(app, "GET", "/metrics", WHOLE[Role.PRODUCER], **shown) == 403


async def test_a_request_with_two_tokens_is_refused() -> None:
    shown = [(b"authorization", f"Bearer {one}".encode()) for one in WHOLE.values()]
    headers = [(b"host", b"127.0.0.1"), *shown]
    assert await status_of(app_of("broker"), "GET", "/metrics", None, headers=headers) == 401


async def test_a_service_may_ask_what_its_work_takes_and_no_more() -> None:
    app = app_of("controller")
    expected: dict[Kind, dict[str, bool]] = {
        "broker": {"/v1/metadata": True, "/v1/audit/head": False, "/v1/users": False},
        "coordinator": {"/v1/metadata": True, "/v1/audit/head": False, "/v1/users": False},
        "controller": {"/v1/metadata": True, "/v1/audit/head": True, "/v1/users": False},
    }
    for kind, paths in expected.items():
        for path, allowed in paths.items():
            peer = {PEER_KEY: ServiceIdentity(kind, 1)}
            status = await status_of(app, "GET", path, None, **peer)
            assert (status != 403) is allowed, (kind, path, status)


async def test_nobody_is_known_before_the_users_were_read() -> None:
    app = app_of("broker")
    app.authentication = Authentication(required=True, users=lambda: None)
    assert await status_of(app, "GET", "/v1/metadata", token_of(1)) == 503
    assert await status_of(app, "GET", "/v1/metadata", None) == 401
    assert await status_of(app, "GET", "/healthz", None) == 200


def test_the_users_of_these_tests_are_who_they_seem() -> None:
    users = known_users()
    assert users.owner_of(WHOLE[Role.ADMIN], 0) == Principal.user("admin")
    assert users.owner_of(PART[Role.VIEWER], 0) == Principal.user("viewer-own")
    assert users.owner_of(token_of(99), 0) is None
