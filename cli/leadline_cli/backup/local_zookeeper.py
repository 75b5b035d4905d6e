"""The ZooKeeper of a `leadline up` that is stopped, run for the time of a restore."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from leadline_cli.cluster_file import ClusterFile, Service
from leadline_cli.embedded_zookeeper import command_again, server_mode
from leadline_cli.processes import Child
from leadline_cli.restart_requests import SUPERVISOR_LOCK
from leadline_client.file_lock import FileLock, FileLockHeld

_DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1


class ClusterRuns(RuntimeError):
    """`leadline up` runs the cluster, or its ZooKeeper cannot be started."""


@contextmanager
def stopped_cluster(data_dir: Path | None) -> Iterator[None]:
    """Keep `leadline up` from running a data directory, if there is one.

    Raises:
        ClusterRuns: it runs.

    """
    if data_dir is None:
        yield
        return
    try:
        lock = FileLock.acquire(data_dir / SUPERVISOR_LOCK, blocking=False, write_pid=True)
    except FileLockHeld as held:
        raise ClusterRuns(
            f"process {held.owner} runs the cluster in {data_dir}: stop it first"
        ) from None
    with lock:
        yield


@contextmanager
def zookeeper_of(cluster: ClusterFile, data_dir: Path) -> Iterator[None]:
    """Run the servers that `leadline up` runs for a cluster; none if its ZooKeeper is another's.

    Raises:
        ClusterRuns: a server ended, or did not serve in time.

    """
    children = [_child(server, data_dir) for server in cluster.zookeeper_servers]
    try:
        for child in children:
            child.start()
        for child, server in zip(children, cluster.zookeeper_servers, strict=True):
            _until_serving(child, urlsplit(server.url).port or 0)
        yield
    finally:
        asyncio.run(_stop(children))


def _child(server: Service, data_dir: Path) -> Child:
    name = f"zookeeper-{server.id}"
    command = command_again(server.argv, data_dir / name)
    return Child(name, command, data_dir / "logs" / f"{name}.log")


def _until_serving(child: Child, port: int) -> None:
    give_up = time.monotonic() + _DEADLINE_S
    while server_mode(port) is None:
        if not child.running or time.monotonic() > give_up:
            raise ClusterRuns(f"{child.name} does not serve: {child.tail() or child.log_path}")
        time.sleep(_POLL_S)


async def _stop(children: list[Child]) -> None:
    await asyncio.gather(*(child.stop() for child in children))
