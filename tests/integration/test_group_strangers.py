"""A stranger knows all that anyone can list of a group, and changes nothing of it.

Real processes: a consumer of the client library, and requests and frames of somebody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from leadline_client import channel
from leadline_client.channel import Error, Hello
from leadline_client.client import Client
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import (
    GroupNotEmpty,
    InstanceInUse,
    OffsetOutOfRange,
    WrongMemberSecret,
)
from leadline_client.payloads import OutgoingRecord
from leadline_client.sync_consumer import Consumer
from leadline_client.wire import LogPosition, NewTopic, TopicPartition
from tests.support.services.up import Up, running

WORDS = (
    *("up", "--brokers", "1", "--controllers", "1", "--coordinators", "1"),
    *("--set", "zookeeper.session.timeout.ms=2000", "--set", "default.replication.factor=1"),
)
P = TopicPartition("orders", 0)
RECORDS = 10
LARGEST = 2**63 - 1
STATIC = ConsumerSettings(auto_commit_ms=None, instance_id="blue")
GUESSES = (None, "", "guess")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("strangers"), *WORDS) as up:
        with Client(bootstrap(up)) as client:
            client.create_topic(NewTopic("orders", 1, 1))
        produce(up)
        yield up


@pytest.fixture
def consumer(up: Up, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """A static member of a group of the test's name, which has read and committed three records."""
    with Consumer(bootstrap(up), request.node.name, settings=STATIC) as consumer:
        consumer.subscribe(["orders"])
        while not consumer.assignment:
            consumer.poll(0.1)
        consumer.commit({P: 3})
        yield consumer


def bootstrap(up: Up) -> list[str]:
    return [row["url"] for row in up.document["brokers"]]


def produce(up: Up) -> None:
    with Client(bootstrap(up)) as client:
        client.produce("orders", 0, [OutgoingRecord(b"record")] * RECORDS)


def seen(up: Up, group: str) -> dict[str, Any]:
    """Return all that anyone can list of a group."""
    with Client(bootstrap(up)) as client:
        shown = client.describe_group(group)
        rows = client.group_offsets(group)["offsets"]
        return shown | {"offsets": [(row["partition"], row["offset"]) for row in rows]}


def post(up: Up, path: str, body: dict[str, Any]) -> tuple[int, int]:
    """Send a request through a broker; return status and error code."""
    answer = httpx.post(f"{bootstrap(up)[0]}{path}", json=body)
    return answer.status_code, answer.json().get("error_code", 0)


def turned_away(up: Up, group: str, hello: Hello) -> int:
    """Say hello on a channel; return the code of the error that closes it."""
    url = up.document["coordinators"][0]["url"].replace("http", "ws", 1)
    with connect(url + channel.CHANNEL_PATH.format(group=group)) as socket:
        socket.send(channel.encode(hello))
        frame = channel.decode(socket.recv(timeout=30))
    assert isinstance(frame, Error), frame
    return frame.error_code


@pytest.mark.parametrize("guess", GUESSES)
def test_a_stranger_commits_nothing_for_a_member(
    up: Up, consumer: Consumer, guess: str | None, request: pytest.FixtureRequest
) -> None:
    group = request.node.name
    before = seen(up, group)
    body = {
        "member": before["members"][0]["id"],
        "generation": before["generation"],
        "coordinator_epoch": before["coordinator_epoch"],
        "offsets": [{"topic": "orders", "partition": 0, "offset": LARGEST}],
        "secret": guess,
    }

    assert post(up, f"/v1/groups/{group}/offsets", body) == (403, WrongMemberSecret.code)
    plain = {"offsets": body["offsets"]}
    assert post(up, f"/v1/groups/{group}/offsets", plain) == (409, GroupNotEmpty.code)

    assert seen(up, group) == before
    consumer.commit({P: 4})
    assert consumer.committed() == {P: 4}


def test_a_stranger_neither_takes_a_channel_over_nor_removes_a_member(
    up: Up, consumer: Consumer, request: pytest.FixtureRequest
) -> None:
    group = request.node.name
    before = seen(up, group)
    member = before["members"][0]["id"]
    claims = (("orders", (0,)),)

    for guess in GUESSES:
        hello = Hello(topics=("orders",), member=member, owned=claims, secret=guess)
        assert turned_away(up, group, hello) == WrongMemberSecret.code
        leave = f"/v1/groups/{group}/members/{member}/leave"
        assert post(up, leave, {"secret": guess}) == (403, WrongMemberSecret.code)
    twin = Hello(topics=("orders",), instance_id="blue")
    assert turned_away(up, group, twin) == InstanceInUse.code

    assert seen(up, group) == before
    produce(up)
    assert consumer.poll(timeout_s=30), "it still consumes"
    consumer.commit({P: 5})
    metrics = httpx.get(f"{up.document['coordinators'][0]['url']}/metrics").text
    for kind in ("hello", "leave"):
        assert f'coordinator_refused_member_secrets_total{{request="{kind}"}}' in metrics


def test_a_secret_is_neither_listed_nor_logged_nor_stored(
    up: Up, consumer: Consumer, request: pytest.FixtureRequest
) -> None:
    known = consumer.group_metadata
    assert known is not None
    assert known.secret is not None
    assert len(known.secret) >= 43, "32 random bytes"
    shown = json.dumps([seen(up, request.node.name), repr(known)])
    everything = [path.read_bytes() for path in up.data_dir.rglob("*") if path.is_file()]

    assert any(known.member.encode() in one for one in everything), "ZooKeeper has the member"
    assert known.secret not in shown
    assert not any(known.secret.encode() in one for one in everything)


def test_nobody_commits_an_offset_beyond_the_end_of_the_log(up: Up) -> None:
    with Client(bootstrap(up)) as client:
        end = client.offsets("orders", 0).log_end_offset
        client.commit_offsets("plain", {P: end})
        for beyond in (end + 1, LARGEST):
            with pytest.raises(OffsetOutOfRange, match=f"ends at {end}"):
                client.commit_offsets("plain", {P: beyond})
        with pytest.raises(OffsetOutOfRange, match="leader epoch"):
            client.commit_offsets("plain", {P: LogPosition(1, 2**31 - 1)})
        assert seen(up, "plain")["offsets"] == [(0, end)]
        client.produce("orders", 0, [OutgoingRecord(b"one more")])
        client.commit_offsets("plain", {P: end + 1})
        assert seen(up, "plain")["offsets"] == [(0, end + 1)]
