"""Loops that go on after a fault."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from leadline_common.keep_running import keep_running


async def test_a_loop_goes_on_after_a_fault_and_ends_when_it_is_cancelled() -> None:
    runs, third = 0, asyncio.Event()

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            third.set()
            await asyncio.Event().wait()
        raise RecursionError("deep")

    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(keep_running(run, "a loop", pause_s=0))
        async with asyncio.timeout(10):
            await third.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [line["task"] for line in logs] == ["a loop", "a loop"]
