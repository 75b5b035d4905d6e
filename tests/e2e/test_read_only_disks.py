"""A disk that becomes read-only under load, as an ext4 does after an error of its device."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults import disks as own
from tests.support.faults.disks import own_disks
from tests.support.faults.faults import only_follows
from tests.support.faults.scenario import TOPIC, loaded, running_cluster
from tests.support.left_out import MARK
from tests.support.services.cluster import Cluster, wait_until

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
DISK_BYTES: Final = 96 << 20
MOST_LINES: Final = 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        own.why_no_power_cuts() is not None, reason=f"{MARK}: {own.why_no_power_cuts()}"
    ),
]


async def last_words(cluster: Cluster, victim: str, lines_before: int) -> str:
    """Wait until a broker has ended with 1; return the few lines that it has logged since."""

    async def is_over() -> bool:
        return not cluster.child(victim).running

    await wait_until(is_over, f"{victim} has ended")
    assert cluster.child(victim).exit_code == 1
    lines = cluster.log(victim).splitlines()[lines_before:]
    assert len(lines) <= MOST_LINES, lines
    return "\n".join(lines)


@pytest.mark.parametrize("whose", ["leader", "follower"])
async def test_a_broker_whose_disk_becomes_read_only_ends_and_comes_back(
    whose: str, seeded: Random
) -> None:
    """It says why, does not start on such a disk, and nothing that was acknowledged is lost."""
    victim = seeded.choice(BROKERS)
    async with (
        running_cluster() as cluster,
        own_disks(cluster, [victim], DISK_BYTES, ext4=True) as disks,
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        if whose == "follower":
            await only_follows(running, victim)
        lines = len(cluster.log(victim).splitlines())
        cluster.note("read-only", victim)
        disks[victim].become_read_only()
        said = await last_words(cluster, victim, lines)
        assert "storage failed" in said
        assert "Read-only file system" in said
        await running.load.progress()

        lines = len(cluster.log(victim).splitlines())
        cluster.restart(victim)
        said = await last_words(cluster, victim, lines)
        assert "cannot be used" in said
        assert "Read-only file system" in said

        disks[victim].mount_again()
        cluster.restart(victim)
        await running.full_isr()
        await running.verify()
