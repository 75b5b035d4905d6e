"""The metadata document: its shape, and that only changes are encoded again."""

from __future__ import annotations

import json

from leadline_client.wire import Metadata
from leadline_common.rpc import ControllerRow
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.changes import RemovalPending
from leadline_controller.domain.cluster import DeletionPending, StateSet, TopicGone
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.channel.requests import RequestBuilder
from tests.unit.controller.images import TOPIC, cluster, state

AR = (1, 2)
ROW = ControllerRow(7, "http://127.0.0.1:1", 3)


async def full_grant(commands: RequestBuilder, broker: BrokerRegistration) -> bytes:
    return commands.grant(broker, await commands.all_roles(broker), {}, "cause").body


def test_the_document_has_the_agreed_shape() -> None:
    image = cluster(AR, {0: AR, 1: AR}, {0: state(1, AR)})
    document = json.loads(MetadataView(image, "c1", ROW).document())
    assert document["version"] == image.version
    assert document["topics"] == {
        TOPIC: {
            "topic_id": "id-1",
            "partitions": [[0, 1, 4, [1, 2], [1, 2]], [1, -1, -1, [], [1, 2]]],
        }
    }
    found = Metadata.from_json(document)
    assert found.controller is not None
    assert (found.controller.id, sorted(found.brokers)) == (7, [1, 2])


def test_it_follows_the_image_and_hides_what_is_being_deleted() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    view = MetadataView(image, "c1", ROW)
    first, tag = view.document(), view.etag()
    assert view.document() is first
    image.apply([StateSet(TOPIC, 0, state(2, (2,)), 9, 99)])
    assert view.etag() != tag
    assert json.loads(view.document())["topics"][TOPIC]["partitions"][0][1] == 2
    image.apply([DeletionPending(TOPIC)])
    assert json.loads(view.document())["topics"] == {}
    assert json.loads(view.document([TOPIC, "unknown"]))["topics"] == {}


def test_partitions_that_are_being_removed_are_hidden_in_a_version_of_their_own() -> None:
    image = cluster(AR, {0: AR, 1: AR}, {0: state(1, AR)})
    view, commands = MetadataView(image, "c1", ROW), RequestBuilder(image, "c1", ROW, 1000)
    before, version = view.etag(), image.version
    image.apply([RemovalPending(TOPIC, frozenset({1}))])
    assert view.etag() != before
    (topic,) = json.loads(commands.metadata(image.brokers[1], version, "cause")[0])["topics"]
    assert [row[0] for row in topic[3]] == [0]


def test_brokers_get_deltas_and_whole_documents() -> None:
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    commands = RequestBuilder(image, "c1", ROW, 1000)
    body, version = commands.metadata(image.brokers[1], None, "cause")
    whole = json.loads(body)
    assert (whole["full"], version, len(whole["topics"])) == (True, image.version, 1)
    nothing = json.loads(commands.metadata(image.brokers[1], version, "cause")[0])
    assert (nothing["full"], nothing["topics"], nothing["deleted"]) == (False, [], [])
    image.apply([DeletionPending(TOPIC)])
    deleted = json.loads(commands.metadata(image.brokers[1], version, "cause")[0])
    assert (deleted["topics"], deleted["deleted"]) == ([], [TOPIC])
    image.apply([TopicGone(TOPIC)])
    gone = json.loads(commands.metadata(image.brokers[1], version, "cause")[0])
    assert gone["deleted"] == [TOPIC]


async def test_a_broker_that_registered_after_a_state_hears_of_no_leader() -> None:
    """R9: the old role of an earlier incarnation is never granted."""
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    image.registered_at[1] = 50
    commands = RequestBuilder(image, "c1", ROW, 1000)
    grant = json.loads(await full_grant(commands, image.brokers[1]))
    assert grant["topics"][0][3][0][:3] == [0, -1, 4]
    other = json.loads(await full_grant(commands, image.brokers[2]))
    assert other["topics"][0][3][0][:3] == [0, 1, 4]


async def test_grants_and_stops_are_numbered_together() -> None:
    """By the numbers a broker tells a delayed StopReplica from one after its last grant."""
    image = cluster(AR, {0: AR}, {0: state(1, AR)})
    commands, broker = RequestBuilder(image, "c1", ROW, 1000), image.brokers[1]
    bodies = [
        await full_grant(commands, broker),
        commands.stop(broker, {TOPIC: [0]}, "cause", delete=True).body,
        await full_grant(commands, broker),
    ]
    assert [json.loads(body)["sequence"] for body in bodies] == [1, 2, 3]
