"""The simulated ZooKeeper answers as the real one does, operation by operation.

Both get the same operations through the services' own client, so that its wire format counts too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from leadline_common.zk.errors import MultiFailed, ZkError
from leadline_common.zk.ops import ANY_VERSION, CheckOp, CreateOp, DeleteOp, Op, SetOp, Stat
from leadline_common.zk.session import ZkSession
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow

PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z")
OPERATIONS = 150

Act = Callable[[ZkSession], Awaitable[Any]]


def comparable(value: Any) -> Any:
    """Return what does not depend on the server: no transaction ids, sessions or times."""
    match value:
        case Stat():
            return (
                value.version,
                value.cversion,
                value.num_children,
                value.data_length,
                value.ephemeral_owner != 0,
                value.mzxid == value.czxid,
            )
        case MultiFailed():
            return "multi failed", value.index, type(value.error).__name__
        case ZkError():
            return type(value).__name__
        case list() if all(isinstance(each, str) for each in value):
            return sorted(value)  # names of children have no order
        case tuple() | list():
            return [comparable(each) for each in value]
    return value


async def outcomes(session: ZkSession, acts: list[Act]) -> list[Any]:
    found = []
    for act in acts:
        try:
            found.append(comparable(await act(session)))
        except ZkError as error:
            found.append(comparable(error))
    return found


def one_op(random: Random) -> Op:
    path = random.choice(PATHS)
    version = random.choice((ANY_VERSION, 0, 0, 1, 2))
    return random.choice(
        (
            CreateOp(path, b"made", ephemeral=random.random() < 0.2),
            CreateOp(f"{path}-", b"", sequence=True),
            SetOp(path, random.randbytes(random.randrange(4)), version),
            DeleteOp(path, version),
            CheckOp(path, version),
        )
    )


def one_act(random: Random) -> Act:
    path, paths = random.choice(PATHS), random.sample(PATHS, 3)
    ops = [one_op(random) for _ in range(random.randrange(1, 4))]
    single = one_op(random)
    acts: tuple[Act, ...] = (
        lambda session: session.multi(ops),
        lambda session: session.multi(ops[:1]),
        lambda session: session.get(path),
        lambda session: session.exists(path),
        lambda session: session.get_children(path),
        lambda session: session.get_many(paths),
        lambda session: session.get_children_many(paths),
        lambda session: session.ensure_path(path),
        lambda session: session.delete(path, ANY_VERSION),
        lambda session: session.create(single.path, b"single"),
        lambda session: session.set(path, b"set", 0),
    )
    return random.choice(acts)


def simulated(acts: list[Act]) -> list[Any]:
    world = World(1)
    zookeeper = ZooKeeper(world)

    async def run() -> list[Any]:
        session = ZkSession(open_transport=zookeeper.transport)
        await session.start("simulated", 10_000)
        return await outcomes(session, acts)

    task = world.loop.in_process(Process("client"), run())
    assert world.loop.run_until(world.loop.now_s + 60, task.done)
    world.loop.close()
    return task.result()


@pytest.mark.parametrize("seed", range(8))
async def test_both_answer_alike(zk_session: ZkSession, seed: int) -> None:
    random = Random(seed)
    acts = [one_act(random) for _ in range(OPERATIONS)]

    expected = await outcomes(zk_session, acts)

    assert await asyncio.to_thread(simulated, acts) == expected
    assert len({str(each) for each in expected}) > 20
