"""The change feed over HTTP: as a stream, at any controller, resumed from a version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leadline_controller.domain.cluster import ClusterImage
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController
from tests.support.services.zookeeper import until

STREAM = {"Accept": "text/event-stream"}


class Stream:
    """Reads events: `last_id` is that of the last batch that came whole."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self.last_id = ""
        self._lines = lines

    async def next(self) -> dict[str, Any]:
        """Return the next event."""
        found: dict[str, Any] = {}
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "data":
                found = json.loads(value)
            elif name == "event":
                kind = value
            elif not line and found:
                assert found["type"] == kind
                return found
        raise EOFError

    async def until(self, kind: str) -> dict[str, Any]:
        """Return the next event of a kind."""
        async with asyncio.timeout(20):
            while (event := await self.next())["type"] != kind:
                pass
        return event


def image_of(controller: RunningController) -> ClusterImage:
    assert controller.service.active is not None
    return controller.service.active_controller().image


@asynccontextmanager
async def following(
    controller: RunningController, last_id: str = "", **params: str
) -> AsyncIterator[Stream]:
    """Follow the feed at a controller."""
    headers = STREAM | ({"Last-Event-ID": last_id} if last_id else {})
    asking = controller.http.stream("GET", "/v1/events", headers=headers, params=params)
    async with asking as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer.aiter_lines())


async def test_changes_come_as_they_happen_through_a_standby_too(rig: Rig) -> None:
    controller = await rig.up(brokers=2)
    standby = await rig.controller()
    await until(lambda: standby.service.active is not None, "the standby knows who rules")
    async with following(controller) as at_the_active, following(standby) as at_the_standby:
        await create(controller, replica_assignment={"0": [1, 2]})
        for stream in (at_the_active, at_the_standby):
            event = await stream.until("topic")
            assert (event["topic"], len(event["partitions"])) == ("orders", 1)
        await rig.brokers[1].leave()
        event = await at_the_active.until("brokers")
        assert [broker["id"] for broker in event["brokers"]] == [2]
        event = await at_the_standby.until("topic_changed")
        assert event["partitions"] == [[0, 2, 1, [2], [1, 2]]]
        assert (await controller.http.delete("/v1/topics/orders")).is_success
        assert (await at_the_active.until("topic_deleted"))["topic"] == "orders"


async def test_a_broken_stream_goes_on_at_another_controller(rig: Rig) -> None:
    controller = await rig.up(brokers=2)
    async with following(controller) as stream:
        await create(controller, replica_assignment={"0": [1, 2]})
        await stream.until("topic")
    last_id = stream.last_id
    await rig.brokers[1].leave()
    await until(lambda: rig.brokers[2].roles["orders", 0].leader == 2, "another one leads")
    await controller.retire()
    successor = await rig.controller()
    await rig.settled(successor)
    async with following(successor, last_id) as again:
        event = await again.until("topic")
        assert event["partitions"][0][1:4] == [2, 1, [2]]


async def test_who_comes_from_an_earlier_controller_hears_which_topics_are_left(rig: Rig) -> None:
    """A topic that was deleted in between is known to nobody any more."""
    controller = await rig.up(brokers=1)
    async with following(controller) as stream:
        for topic in ("orders", "payments"):
            await create(controller, topic, replica_assignment={"0": [1]})
            await stream.until("topic")
    assert (await controller.http.delete("/v1/topics/orders")).is_success
    await until(lambda: "orders" not in image_of(controller).topics, "it is deleted")
    await controller.retire()
    successor = await rig.controller()
    await rig.settled(successor)
    async with following(successor, stream.last_id) as again:
        assert (await again.until("topics"))["topics"] == ["payments"]
    answer = await successor.http.get("/v1/events", params={"after": stream.last_id})
    kinds = [event["type"] for event in answer.json()["events"]]
    assert kinds == ["brokers", "topics", "topic"]


async def test_a_bare_version_may_be_of_any_controller(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    await create(controller, replica_assignment={"0": [1]})
    version = image_of(controller).version
    answer = (await controller.http.get("/v1/events", params={"after": str(version)})).json()
    assert [event["type"] for event in answer["events"]] == ["brokers", "topics", "topic"]
    assert answer["position"].endswith(f"-{answer['version']}")
    position = answer["position"]
    answer = (await controller.http.get("/v1/events", params={"after": position})).json()
    assert (answer["events"], answer["position"]) == ([], position)
    refused = await controller.http.get("/v1/events", params={"after": "7-"})
    assert refused.status_code == 400


async def test_a_stream_ends_with_the_term_that_it_followed(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    async with following(controller) as stream:
        await controller.retire()
        controller.resume()
        with pytest.raises(EOFError):
            async with asyncio.timeout(25):
                await stream.next()


async def test_without_a_stream_the_answer_is_what_has_changed(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    http = controller.http
    start = (await http.get("/v1/events")).json()
    assert start["events"] == []
    waiting = asyncio.create_task(
        http.get("/v1/events", params={"after": start["position"], "wait": "30s"})
    )
    await create(controller, partitions=1, replication_factor=1)
    answer = (await waiting).json()
    assert answer["version"] > start["version"]
    assert {event["type"] for event in answer["events"]} == {"topic"}
    assert (await http.get("/v1/events", params={"wait": "soon"})).status_code == 400
