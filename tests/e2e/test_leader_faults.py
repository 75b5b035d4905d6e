"""S1, S2 and S4: the leader of several partitions dies or freezes under load."""

from __future__ import annotations

import time
from random import Random

import pytest

from tests.support.faults.faults import (
    expired,
    frozen,
    incarnation_of,
    kill,
    moved_away,
    registered_again,
)
from tests.support.faults.scenario import SESSION_MS, rounds, scenario


@pytest.mark.scenario("S1")
@rounds(quick=2)
async def test_s1_leader_killed_and_restarted_after_its_session_expired(
    rounds: int, seeded: Random
) -> None:
    async with scenario() as running:
        for _ in range(rounds):
            victim = await running.leader(seeded.randrange(6))
            led = await running.led_by(victim)
            await kill(running, victim)
            await expired(running, victim)
            await moved_away(running, victim, led)
            # The two that are left make min.insync.replicas: the load goes on without the third.
            await running.load.progress(led)
            running.cluster.restart(victim)
            await running.full_isr()


@pytest.mark.scenario("S2")
@rounds(quick=3)
async def test_s2_leader_killed_and_restarted_before_its_session_expires(
    rounds: int, seeded: Random
) -> None:
    session_ms = 3 * SESSION_MS  # so that a busy machine restarts it in time as well
    async with scenario(settings={"zookeeper.session.timeout.ms": str(session_ms)}) as running:
        for _ in range(rounds):
            victim = await running.leader(seeded.randrange(6))
            led = await running.led_by(victim)
            before = await running.view()
            incarnation = await incarnation_of(running, victim)
            killed_s = time.monotonic()
            await kill(running, victim)
            running.cluster.restart(victim)
            assert time.monotonic() - killed_s < session_ms / 1000 / 3, "void: restarted too late"
            await registered_again(running, victim, incarnation)
            await running.full_isr()
            await running.load.progress(led)
            after = await running.view()
            # R9: a broker that came back is failure, then start, however quick it was.
            for partition in led:
                key = (running.topic, partition)
                assert after.states[key][0].leader_epoch > before.states[key][0].leader_epoch


@pytest.mark.slow
@pytest.mark.scenario("S4")
@rounds(quick=1, soak=10)
async def test_s4_leader_frozen_and_resumed(rounds: int, seeded: Random) -> None:
    async with scenario() as running:
        for _ in range(rounds):
            for sessions in (0.5, 1.0, 2.0, 5.0):
                victim = await running.leader(seeded.randrange(6))
                led = await running.led_by(victim)
                await frozen(running, victim, sessions)
                if sessions >= 2:
                    await moved_away(running, victim, led)
                await running.load.progress()
                await running.full_isr()
