"""A group that the coordinator may not read is left alone, and hinders no other group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog

from leadline_client.errors import GroupUnreadable
from leadline_common import consumer_znodes as nodes
from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.credentials import ZkCredentials, digest_of
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_coordinator.runtime.maintenance import GroupMaintenance
from tests.support.services.coordinators import (
    CoordinatorRig,
    FrameConsumer,
    coordinator,
    make_topic,
)
from tests.support.services.zookeeper import until
from tests.support.services.zookeeper_acls import logged_in, set_acl

pytestmark = pytest.mark.slow

GROUP = "billing"
OTHER = "reports"
OPERATOR = ZkCredentials.of("operator:two")
PRIVATE = {f"digest:{digest_of('operator:two')}": 31}
OPEN = {"world:anyone": 31}
NODES = {
    "group": nodes.group_path(GROUP),
    "members": nodes.ids_path(GROUP),
    "offsets": nodes.offsets_path(GROUP),
    "a topic's offsets": nodes.topic_offsets_path(GROUP, "orders"),
    "an offset": nodes.offset_path(GROUP, "orders", 0),
}


@pytest.fixture
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield
    UNREADABLE.retain("", [])


async def commit(rig: CoordinatorRig, group: str) -> httpx.Response:
    rows = [{"topic": "orders", "partition": 0, "offset": 7}]
    return await rig.http.post(f"/v1/groups/{group}/offsets", json={"offsets": rows})


async def answer_of(rig: CoordinatorRig, method: str, path: str, **options: Any) -> tuple[int, int]:
    answer = await rig.http.request(method, f"/v1/groups/{path}", **options)
    return answer.status_code, answer.json().get("error_code", 0)


@pytest.mark.parametrize("node", NODES)
async def test_other_groups_are_served(
    zk_chroot: str, zk_session: ZkSession, quiet: None, node: str
) -> None:
    await make_topic(zk_session, "orders", 1)
    async with coordinator(zk_chroot) as first:
        await first.active()
        for group in (GROUP, OTHER):
            answer = await commit(first, group)
            assert answer.is_success, answer.text
    await set_acl(zk_session, NODES[node], PRIVATE)
    async with coordinator(zk_chroot, 2) as rig:
        await rig.active()
        assert (await commit(rig, OTHER)).is_success
        await refuses_the_group(rig)
        ready = (await rig.http.get("/readyz")).json()
        assert ready["state"] == "degraded"
        assert NODES[node] in ready["reasons"][0]

        async with logged_in(zk_chroot, OPERATOR) as operator:
            await set_acl(operator, NODES[node], OPEN)
        assert rig.elector.coordinator is not None
        await GroupMaintenance(rig.elector.coordinator).reload()
        offsets = (await rig.http.get(f"/v1/groups/{GROUP}/offsets")).json()["offsets"]
        assert [row["offset"] for row in offsets] == [7]
        assert (await rig.http.get("/readyz")).json()["state"] == "ready"


async def refuses_the_group(rig: CoordinatorRig) -> None:
    refused = (503, GroupUnreadable.code)
    assert await answer_of(rig, "GET", GROUP) == refused
    assert await answer_of(rig, "GET", f"{GROUP}/offsets") == refused
    assert await answer_of(rig, "DELETE", GROUP) == refused
    reset = {"to": "earliest", "topics": ["orders"]}
    for dry_run in (False, True):
        body = reset | {"dry_run": dry_run}
        assert await answer_of(rig, "POST", f"{GROUP}/offsets/reset", json=body) == refused
    answer = await commit(rig, GROUP)
    assert (answer.status_code, answer.json()["error_code"]) == refused
    consumer = FrameConsumer(rig.url, GROUP)
    await consumer.connect()
    await until(lambda: consumer.error is not None, "the consumer is refused")
    assert consumer.error is not None
    assert consumer.error.error_code == GroupUnreadable.code
    await consumer.drop()


async def test_a_group_that_is_gone_meanwhile_can_be_created_again(
    zk_chroot: str, zk_session: ZkSession, quiet: None
) -> None:
    await make_topic(zk_session, "orders", 1)
    async with coordinator(zk_chroot) as first:
        await first.active()
        answer = await commit(first, GROUP)
        assert answer.is_success, answer.text
    await set_acl(zk_session, NODES["group"], PRIVATE)
    async with coordinator(zk_chroot, 2) as rig:
        await rig.active()
        async with logged_in(zk_chroot, OPERATOR) as operator:
            for path in reversed([*NODES.values(), nodes.owners_path(GROUP)]):
                await operator.delete(path, ANY_VERSION)
        assert rig.elector.coordinator is not None
        await GroupMaintenance(rig.elector.coordinator).reload()
        assert await answer_of(rig, "GET", GROUP) == (404, 40450)
        assert (await commit(rig, GROUP)).is_success
