"""A change that is under way when its controller dies: the client sends it again, with its key."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from leadline_client.errors import RequestInDoubt
from leadline_client.wire import NewTopic
from tests.support.faults.scenario import running_cluster
from tests.support.faults.zk_proxy import put_before_controllers

TOPIC_WRITES = (b"/brokers/topics/",)


async def test_a_change_is_made_once_although_its_controller_dies() -> None:
    """The client gets the response, or hears that it is lost; it never hears of a failure."""
    async with running_cluster(controllers=2) as cluster, AsyncExitStack() as proxies:
        points = await put_before_controllers(cluster, TOPIC_WRITES, proxies)
        first = await cluster.active_controller()
        points[first].arm(1, after=False)
        made = await cluster.client.create_topic(NewTopic("made", 2, 3))
        assert points[first].ended.is_set()
        assert made["name"] == "made"

        second = await cluster.active_controller(not_in=[first])
        cluster.restart(first)
        await cluster.until_ready(first)
        points[second].arm(1, after=True)
        with pytest.raises(RequestInDoubt):
            await cluster.client.create_topic(NewTopic("doubtful", 2, 3))
        assert points[second].ended.is_set()
        assert (await cluster.client.describe("doubtful")).partitions
