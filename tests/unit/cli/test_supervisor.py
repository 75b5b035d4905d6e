"""The supervisor looks after its children."""

from __future__ import annotations

import asyncio
from pathlib import Path

from leadline_cli.plan import ClusterOptions, plan_cluster
from leadline_cli.processes import Child
from leadline_cli.supervisor import Supervisor


class MortalCluster(Supervisor):
    """A cluster of which every process ends as soon as it has begun."""

    def __init__(self, data_dir: Path) -> None:
        options = ClusterOptions(data_dir, brokers=1, controllers=1)
        super().__init__(options)
        self._plan = plan_cluster(options, None, is_free=lambda _: True)
        for service in (*self._plan.zookeeper_servers, *self._plan.services):
            child = Child(service.name, ["false"], data_dir / f"{service.name}.log")
            child.start()
            self._children[service.name] = child


async def test_a_child_that_ends_while_others_are_restarted_is_restarted_too(
    tmp_path: Path,
) -> None:
    cluster, stop = MortalCluster(tmp_path), asyncio.Event()
    ends: list[str] = []

    def note(line: str) -> None:
        if " ended with 1" in line:
            ends.append(line.split(maxsplit=1)[0])
        if ends.count("broker-1") == 2:
            stop.set()

    async with asyncio.timeout(30):
        await cluster.watch(stop, restart=True, report=note)
    assert ends.count("broker-1") == 2
    await cluster.stop()
