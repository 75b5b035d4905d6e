"""The byte rate of moving replicas: held on average, whatever the sizes and pauses (KIP-73)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_broker.domain.throttle import LONGEST_DELAY_MS, UNLIMITED, RateQuota
from leadline_broker.runtime.replication.throttle import MovingThrottle, Throttle
from leadline_common.rpc import NO_THROTTLE, MovingRate
from tests.support.manual_clock import ManualClock

RATE = 1_000_000


def quota(bytes_per_s: int = RATE) -> RateQuota:
    made = RateQuota()
    made.set_rate(bytes_per_s, 0)
    return made


def test_without_a_throttle_everything_is_available() -> None:
    made = RateQuota()

    made.take(1 << 40, 0)

    assert (made.available(0), made.delay_ms(0), made.throttled) == (UNLIMITED, 0.0, False)


def test_nothing_is_available_until_it_is_worth_while() -> None:
    made = quota()

    assert made.available(0) == made.available(99) == 0
    assert made.delay_ms(40) == 60
    assert made.available(100) == RATE // 10


def test_a_debt_is_paid_before_anything_is_available_again() -> None:
    made = quota()
    made.take(RATE, 0)

    assert made.available(1_000) == 0
    assert made.delay_ms(1_000) == 100
    assert made.available(1_100) == RATE // 10


def test_no_more_than_a_second_is_saved_up() -> None:
    assert quota().available(3_600_000) == RATE


def test_a_long_wait_is_advised_in_pieces() -> None:
    made = quota(1)
    made.take(1_000_000, 0)

    assert made.delay_ms(0) == LONGEST_DELAY_MS


def test_a_rate_of_nothing_lets_nothing_through() -> None:
    made = quota(0)

    assert (made.available(3_600_000), made.delay_ms(3_600_000)) == (0, LONGEST_DELAY_MS)


def test_a_debt_is_paid_at_the_new_rate() -> None:
    """Otherwise each change of rate would let one more batch through, however slow both are."""
    made = quota()
    made.take(RATE * 4, 0)
    made.set_rate(2 * RATE, 1_000)

    assert made.available(2_500) == 0, "3 s of the old rate are 1.5 s of the new one"
    assert made.available(2_600) == 2 * RATE // 10


def test_what_was_saved_up_at_another_rate_is_lost() -> None:
    made = quota()
    made.set_rate(2 * RATE, 1_000)

    assert made.available(1_050) == 0
    assert made.available(1_100) == 2 * RATE // 10


def test_without_a_throttle_a_debt_is_forgiven() -> None:
    made = quota()
    made.take(RATE * 100, 0)
    made.set_rate(NO_THROTTLE, 1_000)
    assert made.available(1_000) == UNLIMITED

    made.set_rate(RATE, 1_100)

    assert made.available(1_200) == RATE // 10


def test_the_same_rate_again_changes_nothing() -> None:
    made = quota()
    made.set_rate(RATE, 50)
    assert made.available(100) == RATE // 10

    made.take(RATE * 100, 100)
    made.set_rate(RATE, 100)
    assert made.available(1_100) == 0


@settings(deadline=None)
@given(
    rate=st.integers(100_000, 1 << 24),
    batches=st.lists(st.integers(10_000, 1 << 21), min_size=1, max_size=40),
    pauses=st.lists(st.integers(0, 300), min_size=1, max_size=20),
)
def test_a_greedy_mover_holds_the_rate(rate: int, batches: list[int], pauses: list[int]) -> None:
    """It takes all available bytes, in whole batches, and asks again early or late."""
    made = quota(rate)
    now = moved = turn = 0
    largest = max(batches)
    while now < 20_000:
        room = made.available(now)
        while room > 0:
            size = batches[turn % len(batches)]
            made.take(size, now)
            moved, room, turn = moved + size, room - size, turn + 1
        now += max(1, round(made.delay_ms(now))) + pauses[turn % len(pauses)]
        assert moved <= rate * now / 1_000 + largest

    idle = min(1.0, (largest / rate + 0.8) / 20)  # a debt, or a quantum, unpaid at the end
    assert moved >= rate * 20 * (1 - idle)


@pytest.mark.parametrize("sides", [1, 2])
def test_two_sides_in_a_row_hold_the_rate_together(sides: int) -> None:
    """Leader and follower have a quota each, and an answer takes a while."""
    quotas = [quota() for _ in range(sides)]
    now = moved = 0
    while now < 60_000:
        room = min(each.available(now) for each in quotas)
        if room:
            now += 37
            for each in quotas:
                each.take(room, now)
            moved += room
        now += 1 + round(max(each.delay_ms(now) for each in quotas))

    assert moved == pytest.approx(RATE * 60, rel=0.02)


@settings(deadline=None)
@given(
    rates=st.lists(st.integers(50_000, 1 << 22), min_size=1, max_size=4),
    batches=st.lists(st.integers(10_000, 1 << 18), min_size=1, max_size=20),
)
def test_defect_15_each_group_holds_its_own_rate(rates: list[int], batches: list[int]) -> None:
    """So the bytes of all groups together hold the sum of the rates, whoever is greedy."""
    clock, counted = ManualClock(), [0]

    def count(size: int) -> None:
        counted[0] += size

    throttle = Throttle(clock, count)
    named = {str(number): rate for number, rate in enumerate(rates)}
    throttle.set_rates(named)
    moved = dict.fromkeys(named, 0)
    turn = 0
    while clock.monotonic_ms() < 10_000:
        for group in named:
            while throttle.available(group) > 0:
                size = batches[turn % len(batches)]
                throttle.take(group, size)
                moved[group], turn = moved[group] + size, turn + 1
        pause_ms = max(1.0, min(throttle.delay_ms(group) for group in named))
        clock.advance(round(pause_ms))
        elapsed_s = clock.monotonic_ms() / 1_000
        for group, rate in named.items():
            assert moved[group] <= rate * elapsed_s + max(batches)
    assert counted[0] == sum(moved.values())
    for group, rate in named.items():
        assert moved[group] >= rate * 10 * 0.85 - max(batches)


def test_defect_15_what_has_no_rate_yet_waits_and_what_stays_keeps_what_it_has() -> None:
    clock = ManualClock()
    sides = [Throttle(clock, lambda _: None) for _ in range(2)]
    throttle = MovingThrottle(*sides)
    assert throttle.sending.available(throttle.group_of(("id", 0))) == UNLIMITED
    row = MovingRate("7", RATE, {"id": [0]})
    throttle.on_heartbeat_response([row])
    clock.advance(1_000)
    assert throttle.sending.available(throttle.group_of(("id", 0))) == RATE
    assert throttle.sending.available(throttle.group_of(("id", 1))) == 0
    throttle.on_heartbeat_response([row, MovingRate("8", NO_THROTTLE, {"id": [1]})])
    assert throttle.receiving.available(throttle.group_of(("id", 0))) == RATE
    assert throttle.receiving.available(throttle.group_of(("id", 1))) == UNLIMITED
    assert throttle.bytes_per_s == NO_THROTTLE
    throttle.on_heartbeat_response(None)
    assert throttle.sending.available(throttle.group_of(("id", 0))) == UNLIMITED


def test_defect_15_a_replica_added_while_the_last_throttle_ends_waits_for_its_rate() -> None:
    """The response that ends the throttle may be older than the command."""
    clock = ManualClock()
    throttle = MovingThrottle(*[Throttle(clock, lambda _: None) for _ in range(2)])
    throttle.on_heartbeat_response([MovingRate("7", RATE, {"id": [0]})])
    throttle.on_heartbeat_sent()
    throttle.on_replicas_added()
    throttle.on_heartbeat_response(None)
    assert throttle.receiving.available(throttle.group_of(("id", 1))) == 0
    throttle.on_heartbeat_sent()
    throttle.on_heartbeat_response([MovingRate("8", RATE, {"id": [1]})])
    clock.advance(1_000)
    assert throttle.receiving.available(throttle.group_of(("id", 1))) == RATE
