"""An older copy of a log directory is told from the directory itself (rule R17)."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_broker.adapters.directory_nodes import DirectoryVersions
from leadline_broker.adapters.log.root_files import (
    DIRECTORY_VERSION_FILE,
    read_directory_version,
    read_owner,
)
from leadline_broker.runtime.cluster.directory_version import DirectoryVersion
from leadline_client.errors import StorageFailed
from leadline_common.directories import MAX_DIRECTORIES
from leadline_common.zk.errors import ConnectionLoss
from tests.unit.broker.small_cluster import TOPIC_ID, NodeStore, SmallCluster, three


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    interval = {"replica_high_watermark_checkpoint_interval_ms": 100}
    async with await three(tmp_path, **interval) as running:
        yield running


def directory_of(cluster: SmallCluster, broker: int) -> Path:
    return cluster.root / str(broker)


def directory_id(cluster: SmallCluster, broker: int) -> str:
    return read_owner(directory_of(cluster, broker)).directory_id


def written(cluster: SmallCluster, broker: int) -> int:
    """Return the version that ZooKeeper has of a broker's directory."""
    return cluster.nodes.directory_versions.get(directory_id(cluster, broker), 0)


async def rises(cluster: SmallCluster, broker: int) -> int:
    """Produce a record; return the new version once ZooKeeper has it."""
    before = written(cluster, broker)
    await cluster.produce(1, "v")
    await cluster.until(lambda: written(cluster, broker) > before, "the version rises")
    return written(cluster, broker)


def put_back(copy: Path, directory: Path) -> None:
    shutil.rmtree(directory)
    copy.rename(directory)


async def test_r17_an_older_copy_registers_as_another_directory(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    first, copy = directory_id(cluster, 3), tmp_path / "copy"
    await rises(cluster, 3)
    shutil.copytree(directory_of(cluster, 3), copy)
    await rises(cluster, 3)
    await cluster.stop(3)
    put_back(copy, directory_of(cluster, 3))

    await cluster.start(3)

    registered = cluster.stores[3].registered_directories
    assert registered.directory_id not in {"", first}
    assert registered.directory_id == directory_id(cluster, 3)
    assert len(cluster.brokers[3].engine.logs.stored()) == 1, "its logs stay"
    await cluster.stop(3)
    await cluster.start(3)
    again = cluster.stores[3].registered_directories
    assert again == registered, "it is a directory of its own from then on"


async def test_r17_no_replica_of_an_older_copy_keeps_an_id_of_its_own(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    """A membership that was gained after the log was lost is bound to that id."""
    await rises(cluster, 3)
    await cluster.stop(3)
    directory, copy = directory_of(cluster, 3), tmp_path / "copy"
    shutil.rmtree(next(directory.glob("*-0")))
    await cluster.start(3)
    assert cluster.stores[3].registered_directories.of_replicas.keys() == {(TOPIC_ID, 0)}
    await cluster.stop(3)
    shutil.copytree(directory, copy)
    cluster.nodes.directory_versions[directory_id(cluster, 3)] += 1
    put_back(copy, directory)

    await cluster.start(3)

    assert cluster.stores[3].registered_directories.of_replicas == {}


async def test_r17_a_copy_that_lacks_nothing_is_the_directory_itself(tmp_path: Path) -> None:
    """So is what a crash leaves."""
    async with await three(tmp_path) as cluster:  # Seconds pass between its own checkpoints.
        first, copy = directory_id(cluster, 3), tmp_path / "copy"
        await cluster.produce(1, "v")
        await cluster.until(lambda: cluster.high_watermark(3) == 1, "it is committed")
        await cluster.brokers[3].engine.maintenance.checkpoint_and_raise_version()
        shutil.copytree(directory_of(cluster, 3), copy)
        await cluster.stop(3)
        put_back(copy, directory_of(cluster, 3))

        await cluster.start(3)

        assert cluster.stores[3].registered_directories.directory_id == first


class CheckingStore(NodeStore):
    """Notes what the directory has durably whenever a version is written."""

    def __init__(self, cluster: SmallCluster) -> None:
        super().__init__(3, cluster.nodes)
        self._directory = directory_of(cluster, 3)
        self.seen: list[tuple[int, int]] = []
        self.refused = 0

    async def raise_directory_version(self, directory_id: str, version: int) -> None:
        self.seen.append((version, read_directory_version(self._directory)))
        if self.refused:
            self.refused -= 1
            raise ConnectionLoss
        await super().raise_directory_version(directory_id, version)


async def test_r17_a_version_is_durable_before_zookeeper_has_it(cluster: SmallCluster) -> None:
    store = CheckingStore(cluster)
    version = DirectoryVersion(cluster.brokers[3].engine.logs, store)
    before = read_directory_version(directory_of(cluster, 3))

    assert await version.raise_version()

    assert store.seen == [(before + 1, before + 1)]


async def test_r17_a_version_that_zookeeper_did_not_take_rises_again(
    cluster: SmallCluster,
) -> None:
    engine, store = cluster.brokers[3].engine, CheckingStore(cluster)
    store.refused = 2
    engine.maintenance.directory_version = DirectoryVersion(engine.logs, store)

    await cluster.produce(1, "v")

    await cluster.until(lambda: written(cluster, 3) > 0, "the third attempt succeeds")
    versions = [version for version, _ in store.seen[:3]]
    assert versions == sorted(set(versions))
    assert written(cluster, 3) >= versions[2]


async def test_r17_a_version_rises_when_something_was_committed_and_only_then(
    tmp_path: Path,
) -> None:
    async with await three(tmp_path) as cluster:  # Seconds pass between its own checkpoints.
        maintenance = cluster.brokers[3].engine.maintenance
        for _ in range(3):
            await maintenance.checkpoint_and_raise_version()
        assert read_directory_version(directory_of(cluster, 3)) == 0

        await cluster.produce(1, "v")
        await cluster.until(lambda: cluster.high_watermark(3) == 1, "it is committed")
        for _ in range(3):
            await maintenance.checkpoint_and_raise_version()

        assert read_directory_version(directory_of(cluster, 3)) == 1
        assert written(cluster, 3) == 1


async def test_r17_a_damaged_version_stops_the_start_and_says_what_to_do(
    cluster: SmallCluster,
) -> None:
    await rises(cluster, 3)
    await cluster.stop(3)
    path = directory_of(cluster, 3) / DIRECTORY_VERSION_FILE
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    with pytest.raises(StorageFailed, match="is damaged: put back what it had; or remove it"):
        await cluster.start(3)

    path.unlink()
    first = directory_id(cluster, 3)
    await cluster.start(3)
    assert directory_id(cluster, 3) != first, "it counts as an older copy then"


def test_r17_the_versions_of_the_latest_directories_are_kept() -> None:
    versions = DirectoryVersions()
    for number in range(MAX_DIRECTORIES + 1):
        versions = versions.raised("first", 1).raised(f"id-{number}", number)
    versions = versions.raised("first", 7)

    assert len(versions.versions) == MAX_DIRECTORIES
    assert versions.versions["first"] == 7
    assert "id-0" not in versions.versions
    assert versions.versions[f"id-{MAX_DIRECTORIES}"] == MAX_DIRECTORIES
