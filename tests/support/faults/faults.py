"""Faults that are seen to have happened: a fault nobody noticed proves nothing.

Each returns only once its effect shows from outside; the deadline of a wait that
is not met names what did not happen.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from leadline_common import znodes
from tests.support.faults.scenario import SESSION_MS, Scenario
from tests.support.services.cluster import DEADLINE_S, wait_until

KILLED = -signal.SIGKILL
LEAST_SILENCE_S = 1.0
"""A shorter time without an acknowledgement says nothing."""


async def kill(running: Scenario, name: str) -> None:
    """Kill -9 a process."""
    await running.cluster.kill(name)
    code = running.cluster.child(name).exit_code
    assert code == KILLED, f"{name} ended with {code} before it was killed"


async def expired(running: Scenario, broker: str) -> None:
    """Wait until ZooKeeper has ended the session of a broker."""
    number = int(broker.rpartition("-")[2])

    async def gone() -> bool:
        return number not in (await running.view()).brokers

    await wait_until(gone, f"the session of {broker} has expired")


async def kill_at_expiry_of(
    running: Scenario, broker: str, controller: str, delay_s: float
) -> None:
    """Kill a broker, and the controller `delay_s` after ZooKeeper told it of that.

    This test hears of the expiry when the controller does, so the controller dies
    in the middle of what it does about it.
    """
    changed = asyncio.Event()
    number = broker.rpartition("-")[2]
    await kill(running, broker)
    async with running.cluster.zookeeper() as session:
        while number in await session.get_children(znodes.BROKER_IDS, watch=changed.set):
            await asyncio.wait_for(changed.wait(), DEADLINE_S)
            await asyncio.sleep(delay_s)
            running.cluster.send_signal(controller, signal.SIGKILL)
            changed.clear()
        await kill(running, controller)


async def moved_away(running: Scenario, broker: str, partitions: list[int]) -> None:
    """Wait until clients hear of another leader for each partition that `broker` led."""
    assert partitions, f"{broker} led nothing, so its loss moves nothing"
    for partition in partitions:
        await running.cluster.leader_of(running.topic, partition, not_in=[broker])


async def registered_again(running: Scenario, broker: str, incarnation: int) -> None:
    """Wait until a broker is registered with a later incarnation than `incarnation` (R9)."""
    number = int(broker.rpartition("-")[2])

    async def registered() -> bool:
        registration = (await running.view()).brokers.get(number)
        return registration is not None and registration.incarnation > incarnation

    await wait_until(registered, f"{broker} has a later incarnation than {incarnation}")


async def incarnation_of(running: Scenario, broker: str) -> int:
    """Return the incarnation under which a broker is registered."""
    return (await running.view()).brokers[int(broker.rpartition("-")[2])].incarnation


async def frozen(running: Scenario, name: str, sessions: float, seconds: float = 0.0) -> None:
    """Freeze a process for so many session timeouts and seconds, then let it go on."""
    cluster = running.cluster
    pid = cluster.child(name).pid
    cluster.pause(name)
    started_s = time.monotonic()
    await wait_until(lambda: _is_stopped(pid), f"{name} has stopped")
    until_s = started_s + sessions * SESSION_MS / 1000 + seconds
    await asyncio.sleep(until_s - time.monotonic())
    assert await _is_stopped(pid), f"{name} did not stay stopped"
    cluster.resume(name)


async def out_of_isr(running: Scenario, broker: str, partitions: list[int]) -> None:
    """Wait until a broker is out of the ISR of `partitions`, by what ZooKeeper says."""
    assert partitions, f"{broker} leads everything, so nobody can drop it"
    number = int(broker.rpartition("-")[2])

    async def out() -> bool:
        states = (await running.view()).states
        return all(
            number not in states[running.topic, partition][0].isr for partition in partitions
        )

    await wait_until(out, f"{broker} has left the ISR of {partitions}")


async def only_follows(running: Scenario, broker: str) -> None:
    """Let a broker lead nothing, by a clean restart."""
    assert await running.cluster.terminate(broker) == 0
    running.cluster.restart(broker)
    await running.cluster.until_ready(broker)
    await running.full_isr()
    assert await running.led_by(broker) == []


@asynccontextmanager
async def no_acknowledgement(running: Scenario, partitions: Iterable[int]) -> AsyncIterator[None]:
    """Fail if a record is sent and acknowledged in these partitions while the block runs.

    One that was sent before may be on a follower already. It is committed as soon as those who lack
    it leave the ISR, so that its acknowledgement is right.
    """
    numbers, since_s = set(partitions), time.monotonic()
    assert numbers, "void: these partitions are none"
    yield
    until_s = time.monotonic()
    assert until_s - since_s > LEAST_SILENCE_S, "void: the block was over too soon"
    acks = [ack for ack in running.load.acks if since_s < ack.sent_s and ack.at_s < until_s]
    late = [ack for ack in acks if ack.partition in numbers]
    assert not late, f"acknowledged all the same: {late[:5]}"


async def _is_stopped(pid: int | None) -> bool:
    return await asyncio.to_thread(_all_threads_stopped, Path(f"/proc/{pid}/task"))


def _all_threads_stopped(tasks: Path) -> bool:
    """Tell whether every thread of a process is in the state `T`."""
    stats = [stat.read_text() for stat in tasks.glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
