"""A process whose event loop is blocked gives up its ZooKeeper session: another one takes over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leadline_common.zk.errors import SessionExpired
from leadline_common.zk.ports import SessionState
from leadline_common.zk.session import ZkSession
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController, active
from tests.support.services.zookeeper import until

DEADLINE_S = 60.0


@contextmanager
def other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run another event loop in a thread, as another process would."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_S)
        loop.close()


async def test_a_controller_whose_loop_is_blocked_is_replaced_and_resigns_when_it_wakes(
    rig: Rig, zk_chroot: str
) -> None:
    with other_loop() as loop:

        async def begin() -> RunningController:
            made = RunningController(9, zk_chroot, zookeeper_session_timeout_ms=2000)
            await made.start()
            await active([made])
            return made

        async def settled() -> tuple[int, bool]:
            await until(lambda: frozen.epoch == 2, "it knows its successor")
            await frozen.stop()
            return frozen.epoch, frozen.is_active

        frozen = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(begin(), loop))
        wake = threading.Event()
        loop.call_soon_threadsafe(wake.wait, 2 * DEADLINE_S)
        try:
            successor = await rig.up(1)
            await until(lambda: successor.is_active, "the other one is active", DEADLINE_S)
            assert successor.epoch == 2
            await create(successor, "orders")
            assert frozen.is_active, "it has not noticed anything yet"
        finally:
            wake.set()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(settled(), loop))
        assert successor.is_active


async def test_the_session_of_a_blocked_loop_is_lost_and_its_nodes_are_gone(
    zk_session: ZkSession, zk_chroot: str
) -> None:
    states: list[SessionState] = []
    with other_loop() as loop:

        async def begin() -> ZkSession:
            session = ZkSession(on_state=states.append)
            await session.start(zk_chroot, 2000)
            await session.create("/mine", ephemeral=True)
            return session

        blocked = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(begin(), loop))
        gone, wake = asyncio.Event(), threading.Event()
        assert await zk_session.exists("/mine", watch=gone.set) is not None
        loop.call_soon_threadsafe(wake.wait, 2 * DEADLINE_S)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await gone.wait()
            assert not blocked.lease_valid()
        finally:
            wake.set()

        async def use() -> None:
            await until(lambda: states[-1:] == [SessionState.LOST], "it learns that it is over")
            with pytest.raises(SessionExpired):
                await blocked.exists("/mine")
            await blocked.close()

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(use(), loop))
