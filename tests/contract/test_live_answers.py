"""Running services answer every documented example as documented.

The examples go to a broker, to the active controller, and to a standby that forwards them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx
import pytest

from tests.support.openapi.document import (
    Call,
    Described,
    as_a_story,
    broker_to_ask,
    end_tasks,
    operations_at,
)
from tests.support.services.cluster import DEADLINE_S, Cluster

pytestmark = pytest.mark.asyncio(loop_scope="package")

FACES = ("broker", "controller", "standby")


@dataclass
class Face:
    """A kind of service of the cluster, with the URL of one of its processes."""

    kind: str
    cluster: Cluster

    async def url(self) -> str:
        if self.kind == "broker":
            return await broker_to_ask(self.cluster)
        active = await self.cluster.active_controller()
        standby = next(
            c.name for c in self.cluster.supervisor.layout.controllers if c.name != active
        )
        return self.cluster.url(active if self.kind == "controller" else standby)

    async def operations(self) -> list[Described]:
        """Return the operations of the service, those between services too."""
        url = await self.url()
        with client() as asking:
            return as_a_story(operations_at(asking, url))


def client() -> httpx.Client:
    return httpx.Client(trust_env=False, timeout=60)


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest, cluster: Cluster) -> Face:
    return Face(str(request.param), cluster)


def needs_success(operation: Described) -> bool:
    return not operation.may_be_refused


async def settled_answer(
    asking: httpx.Client, face: Face, operation: Described, example: Call
) -> httpx.Response:
    """Send an example; one that must succeed is repeated while the cluster refuses it with 503."""
    give_up = time.monotonic() + DEADLINE_S
    while True:
        answer = operation.send(asking, await face.url(), example)
        not_now = answer.status_code == 503 and answer.json().get("outcome") == "refused"
        if not (needs_success(operation) and not_now) or time.monotonic() > give_up:
            return answer
        await asyncio.sleep(0.1)


async def test_every_example_is_answered_as_documented(face: Face) -> None:
    ids: dict[str, str] = {}
    with client() as asking:
        for operation in await face.operations():
            example = operation.example()
            example.path.update({name: ids[name] for name in example.path.keys() & ids.keys()})
            answer = await settled_answer(asking, face, operation, example)
            what = f"{operation.method} {operation.path}: {answer.status_code} {answer.text}"
            assert operation.problems_of(answer) == [], what
            assert answer.is_success or not needs_success(operation), what
            if operation.names is not None and answer.is_success:
                ids[operation.names] = answer.json()["id"]
        assert answer.json()["complete"], "the next face begins without the topic"
        end_tasks(asking, await face.url())
