"""What controllers say the time is: never later than by the clocks of most live services.

Each answer is compared with how far ahead the clocks have been of the brokers that the controller
takes for live, and its own: a clock that was right all the time counts as right, and one that was
behind, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from leadline_controller.runtime.active_controller import ActiveController
from tests.runtime_simulation.cluster import Cluster
from tests.runtime_simulation.event_loop import OWNER

OUTVOTED: Final = "most clocks were right while several were ahead"
UNSAID: Final = "a controller did not know the time yet"
_ROUNDING_S: Final = 0.002


@contextmanager
def watched(cluster: Cluster, *, reports: bool) -> Iterator[None]:
    """Look at each time that a controller says within the block; note it if that is too late.

    Without `reports` only what brokers delete by it is noted.
    """
    say = ActiveController.cluster_time_ms

    def say_and_look(active: ActiveController) -> int | None:
        time_ms = say(active)
        if not cluster.system.clocks_were_set:
            return time_ms
        problem = _look(cluster, active, time_ms)
        if problem and reports:
            cluster.world.problems.append(problem)
        return time_ms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActiveController, "cluster_time_ms", say_and_look)
        yield


def _look(cluster: Cluster, active: ActiveController, time_ms: int | None) -> str:
    """Note how far ahead most clocks have been; say so if the controller says a later time."""
    system, world, owner = cluster.system, cluster.world, OWNER.get()
    if time_ms is None or owner is None:
        world.reached(UNSAID)
        return ""
    live = [cluster.brokers[number].name for number in active.image.brokers]
    ahead_s = sorted(map(system.furthest_s, [*live, owner.name]))
    most_s = ahead_s[(len(ahead_s) - 1) // 2]
    system.most_ahead_s = max(system.most_ahead_s, most_s)
    said_s = time_ms / 1000 - world.loop.now_s - system.wall_offset_s
    if most_s == 0 < ahead_s[-2]:
        world.reached(OUTVOTED)
    if said_s <= most_s + _ROUNDING_S:
        return ""
    return f"clocks: {owner.name} says a time that is {said_s:.3f} s ahead, most clocks {most_s} s"
