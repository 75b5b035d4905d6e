"""What time it is by the clocks of most brokers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline_controller.domain.clocks import BrokerClocks

MONOTONIC = 5_000
NOW = 1_700_000_000_000
YEARS = 10 * 365 * 86_400_000
WRONG = st.one_of(st.integers(-YEARS, -100_000), st.integers(100_000, YEARS))


def time_by(ahead: dict[int, int], own_ahead: int = 0) -> int:
    """Return the time when brokers and the controller's own clock are ahead of `NOW`."""
    time_ms = time_by_some(ahead, own_ahead, known=len(ahead))
    assert time_ms is not None
    return time_ms


def time_by_some(ahead: dict[int, int], own_ahead: int, known: int) -> int | None:
    """Return the time when only so many of the brokers have said what their clocks show."""
    clocks = BrokerClocks()
    for broker in list(ahead)[:known]:
        clocks.note(broker, NOW + ahead[broker], MONOTONIC)
    return clocks.cluster_time_ms(ahead.keys(), NOW + own_ahead, MONOTONIC)


@given(
    right=st.lists(st.integers(-50, 50), min_size=2, max_size=9),
    wrong=st.lists(WRONG, max_size=8),
    own_is_right=st.booleans(),
)
def test_the_clocks_of_most_say_what_time_it_is(
    right: list[int], wrong: list[int], own_is_right: bool
) -> None:
    wrong = wrong[: len(right) - 1]
    own, *others = [*right, *wrong] if own_is_right else [*wrong, *right]
    assert abs(time_by(dict(enumerate(others)), own) - NOW) <= 50


def test_of_two_groups_of_clocks_the_earlier_counts() -> None:
    """The host of the active controller has a broker, too."""
    assert time_by({1: YEARS, 2: 0, 3: 0}, own_ahead=YEARS) == NOW
    assert time_by({1: -YEARS, 2: 0, 3: 0}, own_ahead=-YEARS) == NOW - YEARS


def test_brokers_that_are_gone_do_not_count() -> None:
    clocks = BrokerClocks()
    for broker in (1, 2, 3):
        clocks.note(broker, NOW + YEARS, MONOTONIC)
    assert clocks.cluster_time_ms({1, 2, 3}, NOW, MONOTONIC) == NOW + YEARS
    assert clocks.cluster_time_ms({3}, NOW, MONOTONIC) == NOW
    assert clocks.cluster_time_ms({1, 2, 3}, NOW, MONOTONIC) is None


@given(
    ahead=st.lists(st.one_of(st.integers(-50, 50), WRONG), min_size=1, max_size=9),
    own_ahead=st.one_of(st.just(0), WRONG),
    known=st.integers(0, 9),
)
def test_defect_52_the_time_is_never_later_than_by_the_clocks_that_are_not_known_yet(
    ahead: list[int], own_ahead: int, known: int
) -> None:
    """A new controller said a median of the few clocks that it knew, and brokers deleted by it."""
    clocks = dict(enumerate(ahead))

    time_ms = time_by_some(clocks, own_ahead, known)

    assert time_ms is None or time_ms <= time_by(clocks, own_ahead)


def test_defect_52_a_new_controller_does_not_know_what_time_it_is() -> None:
    """It has heard nobody, or a broker alone whose clock is wrong."""
    right = dict.fromkeys(range(2, 5), 0)

    assert time_by_some({1: YEARS, **right}, YEARS, known=0) is None
    assert time_by_some({1: YEARS, **right}, YEARS, known=1) is None
    assert time_by_some({1: YEARS, **right}, YEARS, known=2) == NOW
    assert time_by_some({}, YEARS, known=0) is None


def test_a_clock_that_is_set_right_counts_as_it_is_now() -> None:
    clocks = BrokerClocks()
    for ahead in (YEARS, 0):
        clocks.note(1, NOW + ahead, MONOTONIC)
        clocks.note(2, NOW + ahead, MONOTONIC)
    assert clocks.cluster_time_ms({1, 2}, NOW, MONOTONIC) == NOW


def test_the_clocks_of_brokers_go_on_when_the_controllers_is_set() -> None:
    clocks = BrokerClocks()
    for broker in (1, 2):
        clocks.note(broker, NOW, MONOTONIC)
    later = clocks.cluster_time_ms({1, 2}, NOW + YEARS, MONOTONIC + 700)
    assert later == NOW + 700
