"""The byte rate of moving replicas: held on average, whatever the sizes and pauses (KIP-73)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_broker.domain.throttle import LONGEST_DELAY_MS, UNLIMITED, RateQuota
from leadline_common.rpc import NO_THROTTLE

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


def test_another_rate_begins_afresh_and_the_same_one_changes_nothing() -> None:
    made = quota()
    made.take(RATE * 100, 0)
    made.set_rate(RATE, 0)
    assert made.available(1_000) == 0

    made.set_rate(2 * RATE, 1_000)

    assert made.available(1_100) == 2 * RATE // 10
    made.set_rate(NO_THROTTLE, 1_100)
    assert made.available(1_100) == UNLIMITED


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
