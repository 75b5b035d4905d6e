"""What a consumer cannot send to its coordinator: an error, and not a wait without an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import InvalidRequest
from tests.unit.client.standin import StandInCluster
from tests.unit.client.standin_coordinator import StandInCoordinator
from tests.unit.client.test_group_consumer import SETTINGS, Member

NO_CLIENT_ID: Any = b"billing"


async def _polled(consumer: AsyncConsumer) -> None:
    """Poll until that fails; no record ever comes."""
    async with asyncio.timeout(10):
        while True:
            assert await consumer.poll(0.1) == []


@pytest.mark.parametrize(
    ("settings", "topic", "error"),
    [
        (ConsumerSettings(client_id=NO_CLIENT_ID), "t", TypeError),
        (ConsumerSettings(), "\ud800", UnicodeEncodeError),
    ],
)
async def test_a_subscription_that_no_frame_can_hold_is_an_error_of_the_poll(
    cluster: StandInCluster, settings: ConsumerSettings, topic: str, error: type[Exception]
) -> None:
    """The channel stays open without a Hello, and would be opened again and again."""
    async with StandInCoordinator().running() as coordinator:
        member = Member(cluster, coordinator, settings)
        await member.consumer.subscribe([topic])
        with pytest.raises(error):
            await _polled(member.consumer)
        await member.consumer.aclose()
        await member.client.aclose()


@pytest.mark.parametrize("topics", ["orders", b"orders", [b"orders"], [1], {b"orders": 2}])
async def test_topics_that_are_not_names_are_refused(cluster: StandInCluster, topics: Any) -> None:
    """A string is a sequence of strings: it would be a subscription to its letters."""
    async with StandInCoordinator().running() as coordinator:
        member = Member(cluster, coordinator, SETTINGS)
        with pytest.raises(InvalidRequest, match="topics"):
            await member.consumer.subscribe(topics)
        await member.consumer.aclose()
        await member.client.aclose()
