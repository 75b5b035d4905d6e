"""A broker comes back without its records: an ISR membership belongs to a log directory (R17)."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from leadline_broker.adapters.log.root_files import read_directory_version
from leadline_client.wire import NO_LEADER, NewTopic
from tests.support.faults.faults import expired, incarnation_of, kill, registered_again
from tests.support.faults.scenario import Scenario, loaded, running_cluster
from tests.support.services.cluster import DEADLINE_S, wait_until
from tests.support.services.up import command_line

ASSIGNMENT = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
RECONCILIATIONS_S = 3.0
"""Three times what these clusters set as reconcile.interval.ms."""
CHECKPOINT_INTERVAL = "replica.high.watermark.checkpoint.interval.ms"
LEFT = "registered with another log directory"


def log_directory(running: Scenario, broker: str) -> Path:
    """Return the log directory of a broker."""
    directory = running.cluster.service(broker).log_dir
    assert directory is not None
    return Path(directory)


def empty_directory(running: Scenario, broker: str) -> None:
    """Replace the log directory of a stopped broker by a new disk."""
    directory = log_directory(running, broker)
    assert any(directory.glob(f"{running.topic}-*")), f"{directory} has no logs to lose"
    running.disk_was_replaced(broker)
    shutil.rmtree(directory)
    directory.mkdir()


def put_back(running: Scenario, broker: str, copy: Path) -> None:
    """Replace the log directory of a stopped broker by a copy."""
    directory = log_directory(running, broker)
    running.disk_was_replaced(broker)
    shutil.rmtree(directory)
    copy.rename(directory)


async def registered(running: Scenario, *brokers: int) -> None:
    """Wait until exactly these brokers are registered."""

    async def are() -> bool:
        return set((await running.view()).brokers) == set(brokers)

    await wait_until(are, f"brokers {brokers} are registered, and no others")


async def wait_for_leaders(running: Scenario, leaders: dict[int, int]) -> None:
    """Wait until ZooKeeper names these leaders by partition."""
    last: dict[int, int] = {}

    async def are() -> bool:
        states = (await running.view()).states
        last.update({p: states[running.topic, p][0].leader for p in leaders})
        return last == leaders

    try:
        await wait_until(are, f"the leaders are {leaders}")
    except AssertionError as error:
        raise AssertionError(f"{error}; they are {last}") from error


async def nobody_is_elected(running: Scenario, partitions: list[int]) -> None:
    """However often the controller looks, these partitions keep their ISR and have no leader."""
    before = (await running.view()).states
    await asyncio.sleep(RECONCILIATIONS_S)
    after = (await running.view()).states
    for partition in partitions:
        assert after[running.topic, partition] == before[running.topic, partition]
        assert after[running.topic, partition][0].leader == NO_LEADER


@asynccontextmanager
async def loaded_cluster(settings: Mapping[str, str] | None = None) -> AsyncIterator[Scenario]:
    """Run a loaded cluster of three brokers, RF 3 and min.insync.replicas 2, all in sync."""
    topic = NewTopic("orders", replica_assignment=ASSIGNMENT)
    async with running_cluster(settings=settings) as cluster, loaded(cluster, topic) as running:
        await running.load.progress(records=500)
        await running.full_isr()
        yield running


@asynccontextmanager
async def while_nobody_decides(running: Scenario) -> AsyncIterator[None]:
    """Freeze the controller, so that no member has left the ISR when it looks again."""
    with running.cluster.frozen("controller-1"):
        yield


async def comes_back_alone(running: Scenario, replace: Callable[[Scenario, str], None]) -> None:
    """Replace the disk of broker 3, which returns while the other members of the ISR are gone.

    Nobody leads then. Broker 1 is dead at the end, and broker 2 frozen.
    """
    before = await incarnation_of(running, "broker-3")
    async with while_nobody_decides(running):
        await kill(running, "broker-3")
        replace(running, "broker-3")
        await kill(running, "broker-1")
        running.cluster.pause("broker-2")
        running.cluster.restart("broker-3")
        # For a moment, the registration of the killed process may be the only one.
        await registered_again(running, "broker-3", before)
        await registered(running, 3)
    await wait_for_leaders(running, dict.fromkeys(ASSIGNMENT, NO_LEADER))
    await nobody_is_elected(running, list(ASSIGNMENT))


async def test_defect_01_an_emptied_broker_does_not_lead_while_the_other_members_are_gone() -> None:
    async with loaded_cluster() as running:
        await comes_back_alone(running, empty_directory)
        states = (await running.view()).states
        assert all(3 in states[running.topic, p][0].isr for p in ASSIGNMENT)
        running.cluster.resume("broker-2")
        await wait_for_leaders(running, dict.fromkeys(ASSIGNMENT, 2))
        running.cluster.restart("broker-1")
        await running.verify()


@pytest.mark.slow
async def test_defect_01_the_last_member_lost_its_disk_then_only_an_order_elects_another() -> None:
    async with loaded_cluster() as running:
        for name in ("broker-3", "broker-1", "broker-2"):
            await kill(running, name)
            await expired(running, name)
        states = (await running.view()).states
        assert {states[running.topic, p][0].isr for p in ASSIGNMENT} == {(2,)}
        empty_directory(running, "broker-2")
        for name in ("broker-1", "broker-2", "broker-3"):
            running.cluster.restart(name)
        await registered(running, 1, 2, 3)
        await wait_for_leaders(running, dict.fromkeys(ASSIGNMENT, NO_LEADER))
        await nobody_is_elected(running, list(ASSIGNMENT))
        await check_that_the_reason_is_shown(running)
        await running.cluster.client.elect("unclean", [(running.topic, p) for p in ASSIGNMENT])
        await wait_for_leaders(running, dict.fromkeys(ASSIGNMENT, 1))
        await running.verify()


async def copied(running: Scenario, broker: str, copy: Path) -> None:
    """Copy a broker's log directory while it serves, and wait until the copy is an older one."""
    directory = log_directory(running, broker)
    with running.cluster.frozen(broker):
        shutil.copytree(directory, copy)
    copied_version = read_directory_version(copy)
    await running.load.progress(records=500)
    # The directory has a version before ZooKeeper has it, and no other before that.
    newer = copied_version + 2

    async def is_newer() -> bool:
        return read_directory_version(directory) >= newer

    await wait_until(is_newer, f"{broker} has version {newer}")


@pytest.mark.slow
async def test_r17_a_broker_on_an_older_copy_of_its_directory_does_not_lead(tmp_path: Path) -> None:
    async with loaded_cluster({CHECKPOINT_INTERVAL: "200"}) as running:
        await copied(running, "broker-3", tmp_path / "copy")
        await comes_back_alone(running, partial(put_back, copy=tmp_path / "copy"))
        running.cluster.resume("broker-2")
        await wait_for_leaders(running, dict.fromkeys(ASSIGNMENT, 2))
        running.cluster.restart("broker-1")
        await running.verify()


async def check_that_the_reason_is_shown(running: Scenario) -> None:
    """The audit, `explain` and `doctor` say why nobody leads."""
    entries = (await running.view()).audit
    named = [one for one in entries if one.kind == "directory_replaced"]
    assert named, "no audit entry says that broker 2 has another directory"
    assert named[-1].resource["broker"] == 2
    assert LEFT in named[-1].reason
    explained = await leadline(running, "explain", running.topic, "0")
    assert f"broker 2 {LEFT}" in explained
    findings = json.loads(await leadline(running, "doctor", "--json"))["findings"]
    assert any(LEFT in one["found"] and not one["ok"] for one in findings), findings


async def leadline(running: Scenario, *words: str) -> str:
    """Run the CLI on the cluster, and return its output whatever its exit code."""
    command = [*command_line(*words), "--data-dir", str(running.cluster.data_dir)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    return output.decode()


@pytest.mark.slow
async def test_defect_01_one_lost_log_keeps_its_broker_from_leading_that_partition_only() -> None:
    async with loaded_cluster() as running:
        before = await incarnation_of(running, "broker-3")
        async with while_nobody_decides(running):
            for name in ("broker-1", "broker-2", "broker-3"):
                await kill(running, name)
            running.disk_was_replaced("broker-3")
            shutil.rmtree(log_directory(running, "broker-3") / f"{running.topic}-0")
            running.cluster.restart("broker-3")
            # For a moment, the registration of the killed process may be the only one.
            await registered_again(running, "broker-3", before)
            await registered(running, 3)
        await wait_for_leaders(running, {0: NO_LEADER, 1: 3, 2: 3})
        await nobody_is_elected(running, [0])
        for name in ("broker-1", "broker-2"):
            running.cluster.restart(name)
        await running.verify()
