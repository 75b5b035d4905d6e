"""Reading one step ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from leadline_client.read_ahead import one_ahead

WAIT_S = 10.0


def test_all_items_come_in_order() -> None:
    assert list(one_ahead(iter(range(100)))) == list(range(100))
    assert list(one_ahead(iter([]))) == []
    assert list(one_ahead(iter([None, None]))) == [None, None]


def test_the_next_item_is_made_while_one_is_used_and_no_further_one() -> None:
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    ahead = one_ahead(items())
    assert not made[0].is_set(), "nothing is made before the first is wanted"
    assert next(ahead) == 0
    assert made[1].wait(WAIT_S)
    ahead.close()  # type: ignore[attr-defined]  # it is a generator
    assert not made[2].is_set()


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 0
        yield 1
        raise ConnectionError("gone")

    ahead = one_ahead(items())
    assert [next(ahead), next(ahead)] == [0, 1]
    with pytest.raises(ConnectionError, match="gone"):
        next(ahead)


def test_items_are_made_in_the_context_of_the_caller() -> None:
    current = ContextVar("current", default="none")
    current.set("an operation")
    assert list(one_ahead(current.get() for _ in range(2))) == ["an operation"] * 2


def test_closing_waits_for_the_item_under_way() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 0
        begun.set()
        may_end.wait(WAIT_S)
        ended.set()
        yield 1

    ahead = one_ahead(items())
    next(ahead)
    assert begun.wait(WAIT_S)
    threading.Timer(0.05, may_end.set).start()
    ahead.close()  # type: ignore[attr-defined]  # it is a generator
    assert ended.is_set()
