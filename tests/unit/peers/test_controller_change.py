"""A topic that a former controller of Kafka refuses is asked of the next one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaError

from peers.kafka.cluster import KafkaCluster

NOT_CONTROLLER, TOPIC_EXISTS = 41, 36


class FakeAdmin:
    """Answers with error codes, one for each request."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.is_closed = False

    async def create_topics(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(topic_errors=[("t", self.codes.pop(0), "")])

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def cluster(tmp_path: Path) -> KafkaCluster:
    """A cluster that is not started."""
    return KafkaCluster(tmp_path, tmp_path, "127.0.0.1:1", 2_000)


async def test_it_is_asked_again_by_a_client_that_knows_the_next_one(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    admins = [FakeAdmin([NOT_CONTROLLER]), FakeAdmin([0])]
    waiting = list(admins)

    async def new_admin() -> FakeAdmin:
        return waiting.pop(0)

    monkeypatch.setattr(cluster, "_new_admin", new_admin)

    await cluster.create_topic("t", 1)

    assert [admin.is_closed for admin in admins] == [True, False]
    assert waiting == []


async def test_any_other_refusal_is_raised(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def new_admin() -> FakeAdmin:
        return FakeAdmin([TOPIC_EXISTS])

    monkeypatch.setattr(cluster, "_new_admin", new_admin)

    with pytest.raises(KafkaError, match="t: "):
        await cluster.create_topic("t", 1)
