"""Requests that must not harm the controller: no term ends, and no flood reaches ZooKeeper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from leadline_client.errors import InternalError, LeadlineError, Refused, StoreOutcomeUnknown
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common.refusals import FULL_PER_KEY
from leadline_common.znodes import AuditEntry
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.engine.events import ControllerRequest, Reply
from leadline_controller.runtime.engine.refusals import RefusalsCounted
from leadline_controller.runtime.reassignment.events import CancelReassignment
from leadline_controller.runtime.topics.deletions import DeleteTopic
from leadline_controller.runtime.topics.topics import CreateTopic
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.usefixtures("quiet")
LONE = "\ud800x"
REQUESTS: list[ControllerRequest[Any]] = [
    CreateTopic(NewTopic(LONE), dry_run=False),
    CreateTopic(NewTopic(LONE), dry_run=True),
    DeleteTopic(LONE),
    CancelReassignment(TopicPartition(LONE, 0)),
]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Capture the log: structlog's default rendering of a traceback blocks the loop for seconds."""
    with structlog.testing.capture_logs():
        yield


def elected(controller: RunningController) -> ActiveController:
    found = controller.leadership.active_controller
    assert found is not None
    return found


async def ask(term: ActiveController, request: ControllerRequest[Any]) -> None:
    """Have a request handled, and fail if nobody answers it."""
    async with asyncio.timeout(30):
        await term.queue.submit(request, "cause")


async def recorded(controller: RunningController, **params: Any) -> list[dict[str, Any]]:
    answer = await controller.http.get("/v1/audit", params={"order": "oldest"} | params)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
async def test_a_refusal_of_unencodable_text_is_recorded_and_ends_no_term(
    rig: Rig, request_: ControllerRequest[Any]
) -> None:
    controller = await rig.up(1)
    term = elected(controller)
    for _ in range(3):
        with pytest.raises(Refused):
            await ask(term, request_)
    assert elected(controller) is term
    entries = await recorded(controller, outcome="refused")
    assert [entry["resource"]["topic"] for entry in entries] == ["\\ud800x"] * 3


async def test_requests_with_unencodable_text_over_http_end_no_term(rig: Rig) -> None:
    controller = await rig.up(1)
    await create(controller, "orders")
    term = elected(controller)
    row = {"topic": LONE, "partition": 0}
    bodies: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "topics", {"name": LONE}),
        ("POST", "elections", {"type": "preferred", "partitions": [row]}),
        ("POST", "reassignments", {"partitions": [row | {"replicas": [1]}]}),
        ("PATCH", "configs", {"set": {LONE: LONE}}),
        ("PATCH", "topics/orders/configs", {"set": {"retention.ms": LONE}}),
        ("POST", "plans", {"kind": "balance", "topics": [LONE]}),
    ]
    for _ in range(20):
        for method, path, body in bodies:
            content = json.dumps(body)
            answer = await controller.http.request(
                method,
                f"/v1/{path}",
                content=content,
                headers={"content-type": "application/json"},
            )
            assert answer.status_code >= 400, (path, answer.text)
    assert elected(controller) is term
    await create(controller, "clicks")


@pytest.mark.parametrize(
    "fault", [RuntimeError("a bug"), UnicodeError("text"), RecursionError("deep"), MemoryError()]
)
async def test_a_fault_of_one_handler_fails_its_request_only(rig: Rig, fault: Exception) -> None:
    controller = await rig.up(1)
    term = elected(controller)

    async def fail(event: DeleteTopic, reply: Reply[str]) -> None:
        raise fault

    term._executor.handlers = {**term._executor.handlers, DeleteTopic: fail}
    with pytest.raises(InternalError, match="changed nothing"):
        await ask(term, DeleteTopic("orders"))
    assert term.context.metrics.event_faults.labels("DeleteTopic")._value.get() == 1
    await create(controller, "orders")
    assert elected(controller) is term


async def test_after_a_fault_behind_a_write_everything_is_read_again(rig: Rig) -> None:
    controller = await rig.up(1)
    term = elected(controller)

    async def fail(event: DeleteTopic, reply: Reply[str]) -> None:
        await term._writer.commit([], AuditEntry(1, "", "", "written"))
        raise RuntimeError("a bug")

    term._executor.handlers = {**term._executor.handlers, DeleteTopic: fail}
    read_again = asyncio.Event()
    check, reconciler = term._reconciler.check_leadership, term._reconciler

    async def checked() -> None:
        read_again.set()
        await check()

    reconciler.check_leadership = checked  # type: ignore[method-assign]  # the first step of it
    with pytest.raises(StoreOutcomeUnknown):
        await ask(term, DeleteTopic("orders"))
    async with asyncio.timeout(10):
        await read_again.wait()
    assert elected(controller) is term


async def test_a_fault_after_an_event_ends_no_term(rig: Rig) -> None:
    controller = await rig.up(1)
    term = elected(controller)

    def fail() -> None:
        raise RuntimeError("a bug")

    request = term.queue.after_event(fail)
    request()
    await create(controller, "orders")
    await create(controller, "clicks")
    assert elected(controller) is term


async def test_a_flood_of_refusals_is_counted_instead_of_written(rig: Rig) -> None:
    controller = await rig.up(1)
    await create(controller, "orders")
    term = elected(controller)
    writes = term._writer.sent
    for _ in range(100):
        with pytest.raises(LeadlineError):
            await ask(term, CreateTopic(NewTopic("orders"), dry_run=False))
    assert term._writer.sent == writes + FULL_PER_KEY
    term.queue.trigger(RefusalsCounted)
    await until(lambda: term._writer.sent == writes + FULL_PER_KEY + 1, "the rest is recorded")
    *first, last = await recorded(controller, kind="create_topic", outcome="refused")
    assert [entry["resource"] for entry in first] == [{"topic": "orders"}] * FULL_PER_KEY
    assert last["after"]["count"] == 100 - FULL_PER_KEY
    assert "90 more requests" in last["reason"]
