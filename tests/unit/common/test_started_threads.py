"""The threads of a service for work that blocks are there from the beginning."""

from __future__ import annotations

import asyncio
import threading

import pytest

from leadline_common.http.server import run
from leadline_common.started_threads import WORKERS, started_threads


def test_a_pool_has_all_its_threads_before_it_has_work() -> None:
    with started_threads("early", 5):
        names = [one.name for one in threading.enumerate() if one.name.startswith("early")]
        assert sorted(names) == [f"early_{number}" for number in range(5)]


def test_a_pool_that_cannot_have_all_its_threads_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service that could not start hung at its end instead: Python waited for the others."""
    start, left = threading.Thread.start, iter(range(3))

    def limited(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match="start new thread"):
        started_threads("few", 5)
    assert not [one for one in threading.enumerate() if one.name.startswith("few")]


def test_a_service_starts_no_thread_for_its_first_pieces_of_work() -> None:
    seen: list[int] = []

    async def work_side_by_side() -> None:
        together = threading.Barrier(WORKERS)
        seen.append(threading.active_count())
        await asyncio.gather(*(asyncio.to_thread(together.wait, 20) for _ in range(WORKERS)))
        seen.append(threading.active_count())

    run(work_side_by_side())
    assert seen[0] == seen[1]
