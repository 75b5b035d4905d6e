"""What operators do to groups is in the audit, in the transaction that does it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from leadline_common.refusals import FULL_PER_KEY
from leadline_common.zk.session import ZkSession
from leadline_coordinator.domain.records import Ends
from leadline_coordinator.runtime.audit import write_counted_refusals
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.maintenance import GroupMaintenance
from tests.support.reassigning import audit_records
from tests.support.services.coordinators import (
    CoordinatorRig,
    FrameConsumer,
    coordinator,
    make_topic,
)
from tests.support.services.zookeeper import until

CAUSE = {"X-Leadline-Cause": "asked-for"}


@pytest.fixture
async def rig(zk_chroot: str, zk_session: ZkSession) -> AsyncIterator[CoordinatorRig]:
    await make_topic(zk_session, "orders", 2)
    async with coordinator(zk_chroot, offsets_retention_ms=0) as made:
        await made.active()
        made.brokers.ends = {("orders", number): Ends(0, 10 * number) for number in range(2)}
        yield made


async def ask(
    rig: CoordinatorRig, method: str, path: str, status: int = 200, **how: Any
) -> httpx.Response:
    answer: httpx.Response = await rig.http.request(
        method, f"/v1/groups/{path}", headers=CAUSE, **how
    )
    assert answer.status_code == status, answer.text
    return answer


async def audit_entries(session: ZkSession) -> list[tuple[str, str, str]]:
    """Return kind, actor and outcome of each entry, all of which are about the group."""
    records = await audit_records(session)
    assert all(record.entry.resource["group"] == "billing" for record in records)
    return [(r.entry.kind, r.entry.actor, r.entry.outcome) for r in records]


async def test_a_misspelt_topic_deletes_no_offsets(rig: CoordinatorRig) -> None:
    """Without a topic, all offsets of the group would be deleted."""
    await ask(rig, "POST", "billing/offsets/reset", json={"to": "latest", "topics": ["orders"]})

    for query in ("topics=other", "topic=other&topic=more"):
        refused = await ask(rig, "DELETE", f"billing/offsets?{query}", 400)
        assert refused.json()["outcome"] == "refused"

    kept = (await ask(rig, "GET", "billing/offsets")).json()["offsets"]
    assert [(row["partition"], row["offset"]) for row in kept] == [(0, 0), (1, 10)]


async def test_what_is_done_to_the_offsets_of_a_group(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    reset = {"to": "latest", "topics": ["orders"]}
    await ask(rig, "POST", "billing/offsets/reset", json=reset | {"dry_run": True})
    await ask(rig, "POST", "billing/offsets/reset", json=reset)
    await ask(rig, "DELETE", "billing/offsets")
    await ask(rig, "DELETE", "billing")
    await ask(rig, "DELETE", "billing", 404)
    assert await audit_entries(zk_session) == [
        ("reset_offsets", "operator", "dry_run"),
        ("offsets_reset", "operator", "done"),
        ("offsets_deleted", "operator", "done"),
        ("group_deleted", "operator", "done"),
        ("delete_group", "operator", "refused"),
    ]
    _, done, deleted, gone, refused = [r.entry for r in await audit_records(zk_session)]
    assert done.cause == CAUSE["X-Leadline-Cause"]
    assert done.before == {"offsets": {"orders": {"0": None, "1": None}}, "total": 2}
    assert done.after == {"offsets": {"orders": {"0": 0, "1": 10}}, "total": 2}
    assert deleted.before == done.after
    assert gone.before == {"offsets": {}, "total": 0}
    assert "billing" in refused.reason


async def test_who_puts_a_member_out_and_what_its_group_refuses(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    consumer = FrameConsumer(rig.url, "billing")
    await consumer.connect()
    await until(lambda: len(consumer.owned) == 2, "the consumer owns the topic")
    assert await audit_entries(zk_session) == [], "what consumers do by themselves is no entry"
    await ask(rig, "DELETE", "billing", 409)
    member = consumer.member
    await ask(rig, "DELETE", f"billing/members/{member}")
    assert await audit_entries(zk_session) == [
        ("delete_group", "operator", "refused"),
        ("member_evicted", "operator", "done"),
    ]
    assert (await audit_records(zk_session))[-1].entry.resource["member"] == member
    await consumer.drop()


async def test_a_group_that_is_past_its_time(rig: CoordinatorRig, zk_session: ZkSession) -> None:
    await ask(rig, "POST", "billing/offsets/reset", json={"to": "earliest", "topics": ["orders"]})
    served = rig.elector.coordinator
    assert isinstance(served, Coordinator)
    await until(lambda: _is_past(served), "a millisecond has passed")
    assert await GroupMaintenance(served).expire() == ["billing"]
    assert (await audit_entries(zk_session))[-1] == ("group_deleted", "coordinator-1", "done")


def _is_past(served: Coordinator) -> bool:
    """Tell whether both clocks have gone on since the last commit."""
    committed = served.groups["billing"].committer.offsets.values()
    return served.context.time.earliest_ms() > max(one.time_ms for one in committed)


async def test_a_flood_of_refusals_is_counted_instead_of_written(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    for _ in range(40):
        await ask(rig, "DELETE", "billing", 404)
    served = rig.elector.coordinator
    assert isinstance(served, Coordinator)
    assert len(await audit_records(zk_session)) == FULL_PER_KEY
    await write_counted_refusals(served.context)
    *_, last = await audit_records(zk_session)
    assert last.entry.kind == "delete_group"
    assert last.entry.after["count"] == 40 - FULL_PER_KEY
    await write_counted_refusals(served.context)
    assert len(await audit_records(zk_session)) == FULL_PER_KEY + 1
