"""A group that the coordinator may not write waits for its operator, and hinders no other group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from leadline_client.wire import GroupState
from leadline_common import consumer_znodes as nodes
from leadline_common.zk.session import ZkSession
from tests.support.services.coordinators import (
    CoordinatorRig,
    FrameConsumer,
    all_of,
    coordinator,
    make_topic,
)
from tests.support.services.zookeeper import until
from tests.support.services.zookeeper_acls import set_acl

pytestmark = pytest.mark.slow

GROUP, OTHER = "billing", "reports"
READABLE = {"world:anyone": 1 | 16}
"""To read, and to change the ACL again."""
OPEN = {"world:anyone": 31}
OWNERS = nodes.topic_owners_path(GROUP, "orders")


@pytest.fixture
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


async def shown(rig: CoordinatorRig, group: str) -> dict[str, Any]:
    found: dict[str, Any] = (await rig.http.get(f"/v1/groups/{group}")).json()
    return found


async def test_other_groups_keep_their_coordinator(
    zk_chroot: str, zk_session: ZkSession, quiet: None
) -> None:
    await make_topic(zk_session, "orders", 2)
    async with coordinator(zk_chroot) as rig:
        await rig.active()
        term = rig.elector.coordinator
        one, two = FrameConsumer(rig.url, GROUP), FrameConsumer(rig.url, GROUP)
        other = FrameConsumer(rig.url, OTHER)
        whole = all_of("orders", 2)
        await one.connect()
        await other.connect()
        await until(lambda: one.owned == other.owned == whole, "both groups are started")
        await set_acl(zk_session, OWNERS, READABLE)
        await two.connect()
        group = rig.service.manager(GROUP).group
        await until(lambda: group.last_error is not None, "the refusal is shown")
        found = await shown(rig, GROUP)
        assert found["state"] == GroupState.RECORDING
        assert OWNERS in found["last_error"]

        late = FrameConsumer(rig.url, OTHER)
        await late.connect()
        await until(lambda: len(late.owned) == len(other.owned) == 1, "the other group goes on")

        await set_acl(zk_session, OWNERS, OPEN)
        await until(lambda: len(one.owned) == len(two.owned) == 1, "the group goes on")
        assert rig.elector.coordinator is term
        assert (await shown(rig, GROUP))["last_error"] is None
        for consumer in (one, two, other, late):
            await consumer.drop()
