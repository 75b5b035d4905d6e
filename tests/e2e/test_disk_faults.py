"""S16 to S20: disks that lose power, fill up, fail, or have changed when a broker comes back."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import pytest

from leadline_client.batch_header import HEADER_BYTES, parse_headers
from leadline_client.errors import DamagedBatch, StorageFailed
from leadline_client.wire import NewTopic
from tests.support.checks.recovered_tails import TRUNCATED, crc_problems
from tests.support.faults import disks as own
from tests.support.faults import faulty_libc as libc
from tests.support.faults.disks import Disk, cut_power, own_disks
from tests.support.faults.faults import (
    expired,
    kill,
    no_acknowledgement,
    only_follows,
    out_of_isr,
)
from tests.support.faults.scenario import TOPIC, Scenario, loaded, rounds, running_cluster, scenario
from tests.support.left_out import MARK
from tests.support.services.cluster import wait_until

BROKERS = ("broker-1", "broker-2", "broker-3")
DISK_BYTES = 96 << 20
BESIDE_THE_RECORDS = (".index", "leader-epoch-checkpoint", "replication-offset-checkpoint")
_WIPES = 20
needs_mounts = pytest.mark.skipif(own.why_not() is not None, reason=f"{MARK}: {own.why_not()}")
needs_power_cuts = pytest.mark.skipif(
    own.why_no_power_cuts() is not None, reason=f"{MARK}: {own.why_no_power_cuts()}"
)
needs_shim = pytest.mark.skipif(libc.why_not() is not None, reason=f"{MARK}: {libc.why_not()}")


async def lose_power(running: Scenario, disks: dict[str, Disk], victims: list[str]) -> None:
    """Cut the power of brokers under load, and start them again."""
    await running.load.progress()
    assert running.observer is not None
    await cut_power(running.cluster, running.observer, {name: disks[name] for name in victims})
    for name in victims:
        running.cluster.restart(name)
    await running.full_isr()
    await running.load.progress()


@needs_power_cuts
@pytest.mark.scenario("S16")
@rounds(quick=1, soak=20)
async def test_s16_power_cuts(rounds: int, seeded: Random) -> None:
    """Of a follower, a leader, two, all three at one moment; then one disk is new (I1)."""
    async with (
        running_cluster() as cluster,
        own_disks(cluster, BROKERS, DISK_BYTES, ext4=True) as disks,
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        for _ in range(rounds):
            await lose_power(running, disks, [await running.follower(seeded.randrange(6))])
            await lose_power(running, disks, [await running.leader(seeded.randrange(6))])
            await lose_power(running, disks, seeded.sample(BROKERS, 2))
            await lose_power(running, disks, list(BROKERS))
        await replace_disk(running, seeded.choice(BROKERS))
        await running.verify()


@pytest.mark.soak
@pytest.mark.repeated
@pytest.mark.timeout(3600)
@pytest.mark.scenario("S16")
async def test_s16_wiped_disks(seeded: Random) -> None:
    """Of a broker that was away for a session, or for a moment; now and then of two at once.

    A moment is too short for ZooKeeper to notice: only the broker's incarnation tells of it (R17).
    The third is in the ISR, so that it has all that was acknowledged.
    """
    async with scenario() as running:
        for number in range(_WIPES):
            victims = seeded.sample(BROKERS, 2 if number % 5 == 4 else 1)
            for victim in victims:
                await kill(running, victim)
            if seeded.random() < 0.5:
                for victim in victims:
                    await expired(running, victim)
            for victim in victims:
                running.disk_was_replaced(victim)
                empty(log_dir_of(running, victim))
                running.cluster.note("wipe", victim)
                running.cluster.restart(victim)
            await running.full_isr()
            await running.load.progress()


async def replace_disk(running: Scenario, victim: str) -> None:
    """Kill a broker, and give it an empty disk: as many may be lost as min ISR - 1, one."""
    await kill(running, victim)
    await expired(running, victim)
    running.disk_was_replaced(victim)
    empty(log_dir_of(running, victim))
    running.cluster.restart(victim)
    await running.full_isr()
    await running.load.progress()


@needs_mounts
@pytest.mark.scenario("S17")
@pytest.mark.parametrize("whose", ["leader", pytest.param("follower", marks=pytest.mark.soak)])
async def test_s17_disk_full_and_freed_later(whose: str, seeded: Random) -> None:
    """A full leader refuses for certain, before it appends; a full follower leaves the ISR."""
    settings = {"replica.lag.time.max.ms": "1500"}
    async with running_cluster(settings=settings) as cluster:
        victim = seeded.choice(BROKERS)
        async with (
            own_disks(cluster, [victim], DISK_BYTES) as disks,
            loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
        ):
            led = await running.led_by(victim)
            if whose == "leader":
                cluster.note("fill", victim)
                disks[victim].fill()
                await refused_as_full(running)
                await says_that_it_is_full(running, victim)
                async with no_acknowledgement(running, led):
                    await running.load.progress([n for n in range(6) if n not in led], 2000)
                cluster.note("free", victim)
                disks[victim].free()
            else:
                await only_follows(running, victim)
                cluster.note("fill", victim)
                disks[victim].fill()
                await out_of_isr(running, victim, list(range(6)))
                await running.load.progress()
                cluster.note("free", victim)
                disks[victim].free()
            await running.load.progress()
            await running.full_isr()
            await running.verify()


async def refused_as_full(running: Scenario) -> None:
    """Wait until a send was refused for certain, as the disk has no room."""

    async def refused() -> bool:
        return running.load.errors.get(StorageFailed.__name__, 0) > 0

    await wait_until(refused, "a record is refused because the disk is full")


async def says_that_it_is_full(running: Scenario, victim: str) -> None:
    """The broker stays ready, as it leads and serves what it has, and says what is wrong."""
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{running.cluster.url(victim)}/readyz")
    assert (answer.status_code, answer.json()["state"]) == (200, "degraded")
    (reason,) = answer.json()["reasons"]
    assert "is full: 0 bytes are free" in reason


@pytest.mark.slow
@needs_shim
@pytest.mark.scenario("S18")
async def test_s18_fsync_fails_on_a_leader(seeded: Random) -> None:
    """It ends, and acknowledges nothing more; another leader takes over (no fsync is retried)."""
    async with running_cluster() as cluster:
        victim = seeded.choice(BROKERS)
        async with (
            libc.faulty_libc(cluster, victim) as orders,
            loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
        ):
            led = await running.led_by(victim)
            epochs = {n: (await running.view()).states[TOPIC, n][0].leader_epoch for n in led}
            orders.fail_fsync(errno.EIO)

            async def ended() -> bool:
                return not cluster.child(victim).running

            await wait_until(ended, f"{victim} has ended, as it cannot store anything")
            failed = orders.fsyncs_failed
            for number in led:
                await cluster.leader_of(TOPIC, number, not_in=[victim])
            await running.load.progress(led)
            assert failed, "void: no fsync failed"
            orders.fail_fsync(0)
            cluster.restart(victim)
            await running.full_isr()
            late = [a for a in running.load.acks if a.leader_epoch == epochs.get(a.partition)]
            assert late, "void: it never led"
            await running.verify()


Damage = Callable[[Path, Random], None]


def tear(log: Path, seeded: Random) -> None:
    """Leave the beginning of one more batch, as a crash in the middle of a write does."""
    segment = last_segment(log)
    data = segment.read_bytes()
    segment.write_bytes(data + (data or bytes(HEADER_BYTES))[: seeded.randrange(1, HEADER_BYTES)])


def append_garbage(log: Path, seeded: Random) -> None:
    """Append bytes that are no batch."""
    with last_segment(log).open("ab") as file:
        file.write(seeded.randbytes(seeded.randrange(1, 500)))


def last_segment(log: Path) -> Path:
    return max(log.glob("*.log"))


@pytest.mark.slow
@pytest.mark.scenario("S19")
async def test_s19_torn_or_garbled_tail(seeded: Random) -> None:
    """Every log of a killed broker has one: exactly that is cut, and reported (I16)."""
    async with scenario() as running:
        for damage in (tear, append_garbage):
            victim = await running.leader(seeded.randrange(6))
            reported = running.cluster.log(victim).count(TRUNCATED)
            await kill(running, victim)
            for log in logs_of(running, victim):
                damage(log, seeded)
            running.cluster.restart(victim)
            await reports_cuts(running, victim, reported + 6)
            await running.full_isr()
            await running.load.progress()


async def reports_cuts(running: Scenario, broker: str, count: int) -> None:
    """Wait until a broker has reported that many cut tails since its first start."""

    async def reported() -> bool:
        return running.cluster.log(broker).count(TRUNCATED) >= count

    await wait_until(reported, f"{broker} has cut {count} tails")


def log_dir_of(running: Scenario, broker: str) -> Path:
    return Path(running.cluster.service(broker).log_dir or "")


def empty(directory: Path) -> None:
    for one in directory.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def files_named(directory: Path, pattern: str) -> list[Path]:
    found = [one for one in directory.rglob("*") if pattern in one.name]
    return [one for one in found if one.stat().st_size]


def logs_of(running: Scenario, broker: str) -> list[Path]:
    logs = sorted(log_dir_of(running, broker).glob(f"{running.topic}-*"))
    assert len(logs) == 6, logs
    return logs


def flip(file: Path, seeded: Random) -> None:
    """Flip one bit of a file."""
    data = bytearray(file.read_bytes())
    data[seeded.randrange(len(data))] ^= 1 << seeded.randrange(8)
    file.write_bytes(data)


@pytest.mark.slow
@pytest.mark.scenario("S20")
async def test_s20_flipped_bit_beside_the_records(seeded: Random) -> None:
    """What can be derived again is: nothing is lost, and all replicas agree."""
    settings = {"replica.high.watermark.checkpoint.interval.ms": "500"}
    async with scenario(settings=settings) as running:
        await running.load.progress(records=4000)  # so that segments are closed
        for pattern in BESIDE_THE_RECORDS:
            victim = await running.leader(seeded.randrange(6))
            await kill(running, victim)
            files = files_named(log_dir_of(running, victim), pattern)
            assert files, f"void: no file is called {pattern}"
            for file in files:
                flip(file, seeded)
            running.cluster.restart(victim)
            await running.full_isr()
            await running.load.progress()


@pytest.mark.slow
@pytest.mark.scenario("S20")
async def test_s20_flipped_bit_in_a_closed_segment(seeded: Random) -> None:
    """Detected when it is read, and repaired from another replica; no reader is served it."""
    async with scenario() as running:
        await running.load.progress(records=4000)
        victim = await running.follower(seeded.randrange(6))
        await kill(running, victim)
        logs = logs_of(running, victim)
        closed = [file for log in logs for file in sorted(log.glob("*.log"))[:-1]]
        assert closed, "void: no segment is closed"
        damaged = seeded.choice(closed)
        damage_a_batch(damaged, seeded)
        running.cluster.restart(victim)
        await running.full_isr()
        await running.load.progress()
        await knows_that_all_are_in_sync(running, victim)
        await is_served_whole(running, victim, damaged)


async def knows_that_all_are_in_sync(running: Scenario, broker: str) -> None:
    """Wait until a broker's own metadata says so: before, it serves no reads as a follower."""

    async def knows() -> bool:
        answer = await running.cluster.get(broker, "/v1/metadata")
        if answer.status_code != httpx.codes.OK:
            return False
        rows = answer.json()["topics"][running.topic]["partitions"]
        return all(len(isr) == 3 for _, _, _, isr, *_ in rows)

    await wait_until(knows, f"{broker} knows that all replicas are in sync")


def damage_a_batch(segment: Path, seeded: Random) -> None:
    """Flip one bit of some batch, in its header or in its records."""
    data = bytearray(segment.read_bytes())
    header = seeded.choice(list(parse_headers(bytes(data))))
    place = header.position + seeded.randrange(header.size)
    data[place] ^= 1 << seeded.randrange(8)
    segment.write_bytes(data)


async def is_served_whole(running: Scenario, broker: str, segment: Path) -> None:
    """Read a segment from its broker, as readers of any replica do, who repeat what is refused."""
    number = segment.parent.name.rpartition("-")[2]
    path = f"/v1/topics/{running.topic}/partitions/{number}/records"
    end = int(min(one for one in segment.parent.glob("*.log") if one > segment).stem)
    refused, offset = 0, int(segment.stem)

    async def has_read_on() -> bool:
        nonlocal refused, offset
        answer = await running.cluster.request(
            "GET",
            broker,
            path,
            params={"offset": offset, "replica": "any"},
            headers={"accept": "application/octet-stream"},
        )
        if answer.status_code != httpx.codes.OK:
            assert answer.json()["error_code"] == DamagedBatch.code, answer.text
            refused += 1
            return False
        assert not crc_problems(answer.content, f"a reader of {segment}")
        offset = int(answer.headers["x-leadline-next-offset"])
        return True

    while offset < end:
        await wait_until(has_read_on, f"{segment} can be read from {offset}")
    assert refused, f"all of {segment} was served at once, though a bit of it was flipped"
