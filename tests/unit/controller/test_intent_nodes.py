"""Intents to reassign: what a read of their nodes finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.clock import SystemClock
from leadline_common.tasks import Intent
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.engine.event_queue import EventQueue
from leadline_controller.runtime.ports import ControllerStore, Wake
from leadline_controller.runtime.reassignment.intents import IntentNodes

ORDERS = TopicPartition("orders", 0)


class Store:
    """A store with one intent."""

    def __init__(self, node: ReadNode) -> None:
        self.node = node

    async def list_children(self, path: str, wake: Wake) -> list[str]:
        del wake
        return ["0"] if path.endswith("/orders") else ["orders"]

    async def read_nodes(self, paths: Sequence[str]) -> list[ReadNode]:
        return [self.node for _ in paths]


def intents_in(store: Store) -> IntentNodes:
    return IntentNodes(cast("ControllerStore", store), EventQueue(SystemClock()))


async def test_a_node_that_was_replaced_is_found_though_its_version_is_the_same() -> None:
    store = Store(ReadNode(b"[2]", version=0, zxid=7))
    intents = intents_in(store)
    assert (await intents.read(everything=True)).changed == {ORDERS: (Intent((2,)), 0)}
    assert not (await intents.read(everything=True)).changed
    store.node = ReadNode(b"[3]", version=0, zxid=9)
    assert (await intents.read(everything=True)).changed == {ORDERS: (Intent((3,)), 0)}


@pytest.mark.parametrize(
    "value",
    [b"[]", b"[3, 3]", b'{"target": [3, 2], "start": [1, 1, 2], "cancelled": true}'],
)
async def test_replicas_that_no_topic_may_have_are_invalid(value: bytes) -> None:
    found = await intents_in(Store(ReadNode(value, version=0, zxid=7))).read(everything=True)
    assert not found.changed
    assert list(found.invalid) == [("orders", "0")]
