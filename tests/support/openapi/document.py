"""Reading an OpenAPI document as a client would: what to send, and what may come back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from openapi_schema_validator import OAS31Validator

from tests.support.openapi.conventions import METHODS, resolved
from tests.support.services.cluster import Cluster
from tests.support.services.up import until

DOCUMENTS = Path(__file__).resolve().parents[3] / "openapi"
JSON = "application/json"
TOPIC = "orders"
"""The topic that all examples are about."""


MADE = {
    "make_plan": "plan_id",
    "reassign": "task_id",
    "drain": "task_id",
    "create_token": "token_id",
}
"""The parameters that name what an operation has made."""
FLEETING = (
    "add_partitions",
    "apply_plan",
    "cancel_reassignment",
    "cancel_task",
    "change_task",
    "commit_offsets",
    "delete_group",
    "delete_offsets",
    "drain",
    "drop_staged",
    "evict_member",
    "forget_broker",
    "join_group",
    "leave_group",
    "poll_consumer",
    "publish",
    "read_group",
    "read_lag",
    "read_offsets",
    "rebalance_group",
    "remove_partitions",
    "sync_consumer",
    "v3_add_partitions",
    "v3_delete_topic",
    "v3_list_acls",
    "v3_list_assignments",
    "v3_list_consumers",
    "v3_list_lags",
    "v3_read_assignment",
    "v3_read_broker_task",
    "v3_read_cluster_config",
    "v3_read_consumer",
    "v3_read_group",
    "v3_read_lag",
    "v3_read_lag_summary",
    "v3_read_reassignment",
    "v3_remove_broker",
    "v3_remove_brokers",
    "v3_unregister_broker",
)
"""What the examples of these are about depends on what is under way: a refusal may be right."""


@dataclass(frozen=True)
class Call:
    """One request: what to fill in where the document asks for it."""

    path: dict[str, str] = field(default_factory=dict)
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None


@dataclass(frozen=True)
class Described:
    """One operation of a document."""

    method: str
    path: str
    details: dict[str, Any] = field(repr=False)
    document: dict[str, Any] = field(repr=False)
    strict: dict[str, Any] = field(repr=False)
    validators: dict[str, OAS31Validator] = field(default_factory=dict, repr=False)
    valid: set[tuple[str, bytes]] = field(default_factory=set, repr=False)

    @property
    def id(self) -> str:
        return str(self.details["operationId"])

    @property
    def tag(self) -> str:
        return str(self.details["tags"][0])

    @property
    def parameters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.details.get("parameters", [])
        return found

    def example(self) -> Call:
        """Return the request that a reader sends who changes nothing of what is filled in."""
        given = {one["name"]: _filled_in(one) for one in self.parameters}
        places = {one["name"]: one["in"] for one in self.parameters}
        body = self.example_body()
        return Call(
            path={name: value for name, value in given.items() if value and places[name] == "path"},
            query=[
                (name, value) for name, value in given.items() if value and places[name] == "query"
            ],
            headers={} if body is None else {"content-type": JSON},
            content=None if body is None else json.dumps(body).encode(),
        )

    def example_body(self) -> Any:
        """Return the body that the document shows, or None where it shows none."""
        content = self.details.get("requestBody", {}).get("content", {}).get(JSON, {})
        if "example" in content:
            return content["example"]
        return self._resolved(content.get("schema", {})).get("example")

    @property
    def may_be_refused(self) -> bool:
        """Whether what the example is about need not be there."""
        return self.id in FLEETING

    @property
    def names(self) -> str | None:
        """The parameter that names what a request made, for those that answer with an id."""
        return MADE.get(self.id)

    def send(self, client: httpx.Client, url: str, call: Call) -> httpx.Response:
        """Send a request to a service."""
        path = self.path
        for name, value in call.path.items():
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        return client.request(
            self.method,
            url + path,
            params=httpx.QueryParams(urlencode(call.query)) if call.query else None,
            headers=call.headers,
            content=call.content,
        )

    def problems_of(self, answer: httpx.Response) -> list[str]:
        """Return how an answer differs from every one that is documented; [] when it does not."""
        stated = self.details["responses"].get(str(answer.status_code))
        if stated is None:
            return [f"the status {answer.status_code} is not documented"]
        contents = stated.get("content", {})
        if not contents:
            return [f"a body that is not documented: {answer.text}"] if answer.content else []
        # Without blanks: a reader does not tell `text/plain; version=1` by them.
        types = {name.replace(" ", ""): content for name, content in contents.items()}
        stated_type = answer.headers.get("content-type", "").replace(" ", "")
        content = types.get(stated_type) or types.get(stated_type.partition(";")[0])
        if content is None:
            return [f"the media type {stated_type} is not documented"]
        if not answer.headers["content-type"].startswith(JSON):
            return []
        return self._schema_problems(content.get("schema", {}), answer)

    def _schema_problems(self, schema: dict[str, Any], answer: httpx.Response) -> list[str]:
        # Both are kept, because validation takes longer than the answer does.
        name = f"{answer.status_code} {answer.headers['content-type']}"
        if (name, answer.content) in self.valid:
            return []
        validator = self.validators.get(name)
        if validator is None:
            validator = OAS31Validator({**schema, "components": self.strict})
            self.validators[name] = validator
        problems = [
            f"{'.'.join(map(str, problem.absolute_path)) or 'the body'}: {problem.message}"
            for problem in validator.iter_errors(answer.json())
        ]
        if not problems:
            self.valid.add((name, answer.content))
        return problems

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        found: dict[str, Any] = self.document["components"]["schemas"].get(name, schema)
        return found


def operations_of(document: dict[str, Any]) -> Iterator[Described]:
    """Yield every operation of a document."""
    strict = _strict(document["components"])
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield Described(method, path, resolved(item[method], document), document, strict)


def operations_at(client: httpx.Client, url: str) -> list[Described]:
    """Return the operations that a running service serves to clients."""
    document = client.get(f"{url}/openapi.json").raise_for_status().json()
    return list(operations_of(document))


def internal_operations(service: str) -> list[Described]:
    """Return the operations that other services call at a `broker` or a `controller`."""
    file = DOCUMENTS / f"{service}-internal.json"
    return list(operations_of(json.loads(file.read_text(encoding="utf-8"))))


def as_a_story(operations: Iterable[Described]) -> list[Described]:
    """Return operations in an order in which each example can work.

    The topic and the user of the examples are created first and deleted last, and records are
    appended before they are read. What may move leaders comes after all that asks a leader, and
    what has an id of its own is made before it is named.
    """
    beginning = ("create_topic", "produce", "create_user")
    moving, ending = ("make_plan", "reassign", "elect"), ("delete_user", "delete_topic")

    def place(one: Described) -> tuple[int, int]:
        if one.id in beginning:
            return 0, beginning.index(one.id)
        if one.id in moving:
            return 2, moving.index(one.id)
        if one.id in ending:
            return 4, ending.index(one.id)
        is_later = one.may_be_refused or any(f"{{{made}}}" in one.path for made in MADE.values())
        return (3, 0) if is_later else (1, 0)

    return sorted(operations, key=place)


def end_tasks(client: httpx.Client, url: str) -> None:
    """Cancel every task that examples have begun: a broker that is drained is given nothing."""

    def is_over() -> bool:
        tasks = client.get(f"{url}/v1/tasks").raise_for_status().json()["tasks"]
        left = [task["id"] for task in tasks if task["finished_at_ms"] is None]
        for task_id in left:
            client.delete(f"{url}/v1/tasks/{task_id}")
        return not left

    until(is_over, "no task is under way")


async def broker_to_ask(cluster: Cluster) -> str:
    """Return the URL of the broker that leads the partition of the examples, once it exists."""
    topics = (await cluster.get("broker-1", "/v1/topics")).json()["topics"]
    exists = any(topic["name"] == TOPIC for topic in topics)
    return cluster.url(await cluster.leader_of(TOPIC, 0) if exists else "broker-1")


def _filled_in(parameter: dict[str, Any]) -> str | None:
    value = parameter.get("example", parameter["schema"].get("default"))
    return None if value is None else str(value)


def _strict(components: dict[str, Any]) -> dict[str, Any]:
    """Refuse members that are not documented, where a schema does not say otherwise."""
    strict = deepcopy(components)
    for schema in strict["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return strict
