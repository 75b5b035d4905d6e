"""Standing by for office, without ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from leadline_common.clock import SystemClock
from leadline_common.settings import ControllerSettings
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.leadership import Leadership, Means
from leadline_controller.runtime.ports import ControllerStore


class LostOnly:
    """The one part of a store that a waiting candidate looks at."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()


@pytest.mark.parametrize("steps", range(8))
async def test_a_candidate_that_wakes_up_can_still_be_cancelled(steps: int) -> None:
    """A stop that comes as the watch fires was swallowed, and the process went on for ever."""
    means = cast("Any", Means)(None, None, SystemClock(), str, int)
    candidate = Leadership(
        ControllerSettings(controller_id=1), "http://127.0.0.1:1", means, ControllerMetrics()
    )
    waiting = asyncio.create_task(candidate._wait(cast("ControllerStore", LostOnly())))
    await asyncio.sleep(0)
    candidate._changed.set()
    for _ in range(steps):
        await asyncio.sleep(0)

    cancelled = waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert waiting.cancelled() == cancelled
