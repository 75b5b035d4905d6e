"""What the coordinator asks of brokers, before a real server that knows one leader."""

from __future__ import annotations

from aiohttp import web
from aiohttp.test_utils import TestServer

from leadline_client.wire import TopicPartition
from leadline_common.identity import ServiceAddress, ServiceIdentity
from leadline_coordinator.adapters.brokers import HttpBrokerClient
from leadline_coordinator.domain.records import Ends


async def test_ends_are_found_of_more_topics_than_fit_into_an_address() -> None:
    names = [f"a-topic-with-a-name-of-some-length-{number}" for number in range(3_000)]

    async def metadata(request: web.Request) -> web.Response:
        asked = request.query.get("topics")
        shown = names if asked is None else asked.split(",")
        return web.json_response(
            {
                "cluster_id": "toy",
                "version": 1,
                "controller": None,
                "brokers": [{"id": 1, "url": url, "rack": None, "incarnation": 1}],
                "topics": {
                    name: {"topic_id": "id", "partitions": [[0, 1, 0, [1], [1]]]} for name in shown
                },
            }
        )

    async def offsets(request: web.Request) -> web.Response:
        found = {"log_start_offset": 0, "high_watermark": 9, "offset": None}
        rows = (await request.json())["partitions"]
        return web.json_response(
            {"partitions": [row | {"error_code": 0, "offsets": found} for row in rows]}
        )

    app = web.Application()
    app.add_routes([web.get("/v1/metadata", metadata), web.post("/v1/offsets", offsets)])
    brokers = HttpBrokerClient()
    async with TestServer(app) as server:
        url = str(server.make_url("/")).rstrip("/")
        broker = ServiceAddress(ServiceIdentity("broker", 1), url)
        few = await brokers.offsets([broker], {TopicPartition(names[0], 0)}, None)
        many = await brokers.offsets([broker], {TopicPartition(name, 0) for name in names}, None)
        await brokers.close()

    assert few == {(names[0], 0): Ends(0, 9)}
    assert many == {(name, 0): Ends(0, 9) for name in names}
