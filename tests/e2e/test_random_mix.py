"""S30: faults of all kinds at random, under load and with a consumer group, for as long as asked.

`make soak MINUTES=60` lets it go on for an hour. What is checked afterwards is all of it: the
history of every client, every replica, ZooKeeper's history, the group's members, and how much
descriptors, threads and memory have grown.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from random import Random

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.links import linked
from tests.support.faults.mix import QUIET_EVERY, Mix
from tests.support.faults.scenario import (
    LINKED_SESSION_MS,
    TOPIC,
    LinkedScenario,
    loaded,
    running_cluster,
)
from tests.support.groups.group import loaded_group

pytestmark = pytest.mark.slow

WINDOW_S = 30.0
SHORT_WINDOW_S = 5.0
RATE = 800
"""Records a second that are offered: five hundred or more are to be acknowledged in a long run."""
LEAST_PER_S = 500
SETTINGS = {"zookeeper.session.timeout.ms": str(LINKED_SESSION_MS)}
LONG = {"log.segment.bytes": str(64 << 20)}
"""In an hour of small segments a broker opens hundreds of files, of which it keeps 1,024 open."""


@pytest.mark.scenario("S30")
async def test_s30_random_mix(mix_minutes: float, tmp_path: Path, seeded: Random) -> None:
    window_s = WINDOW_S if mix_minutes else SHORT_WINDOW_S
    count = max(QUIET_EVERY, math.ceil(mix_minutes * 60 / window_s)) if mix_minutes else 2
    settings = {**SETTINGS, **LONG} if mix_minutes else SETTINGS
    async with (
        running_cluster(controllers=2, coordinators=2, settings=settings) as cluster,
        linked(cluster) as links,
        loaded(cluster, NewTopic(TOPIC, 6, 3), rate=RATE) as unlinked,
    ):
        running = LinkedScenario(cluster, unlinked.load, unlinked.observer, links=links)
        async with loaded_group(cluster, tmp_path, "mix") as group:
            mix = Mix(running, group, seeded)
            await mix.start_group()
            before, began_s = running.load.acknowledged, time.monotonic()
            await mix.windows(count, window_s)
            rate = (running.load.acknowledged - before) / (time.monotonic() - began_s)
            await running.settle()
        print(f"{count} windows, {rate:.0f} acknowledged a second: {dict(mix.done)}")  # noqa: T201 - shown under -rP
        assert mix.done, "void: no fault"
        assert running.observer is not None
        assert running.observer.faults, "void: nobody saw a fault"
        if mix_minutes:
            assert mix.quiet == count // QUIET_EVERY
        await running.verify()
