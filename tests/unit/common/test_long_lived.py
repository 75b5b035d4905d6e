"""Objects that live long are left out of the garbage collector's passes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from leadline_common.long_lived import LongLived, collector_paused


@pytest.fixture(autouse=True)
def unfrozen(own_collector: None) -> Iterator[None]:
    del own_collector
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_the_collector_leaves_them_alone_once_many_are_new() -> None:
    objects, frozen = LongLived(10), []
    kept: list[list[int]] = []
    for _ in range(21):
        kept.append([])
        objects.add()
        objects.keep_from_collector()
        frozen.append(gc.get_freeze_count())

    grew = [number for number in range(1, 21) if frozen[number] > frozen[number - 1]]
    assert grew == [9, 19]


def test_nothing_is_done_while_nothing_is_new() -> None:
    objects = LongLived(10)
    objects.add(9)
    objects.keep_from_collector()

    assert gc.get_freeze_count() == 0


def test_the_collector_runs_again_after_a_pause_in_a_pause() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_runs_again_after_an_error() -> None:
    with suppress(ValueError), collector_paused():
        raise ValueError
    assert gc.isenabled()
