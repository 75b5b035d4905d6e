"""What ZooKeeper says about the active controller and the active coordinator."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from leadline_common import consumer_znodes, znodes
from leadline_common.election_epochs import decode_epoch
from leadline_common.rpc import ControllerRow
from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.errors import NoNode
from leadline_common.zk.session import ZkSession
from leadline_common.znode_json import node_number


async def elected_controller(session: ZkSession) -> tuple[int | None, int]:
    """Return the id of the active controller and its epoch, as ZooKeeper's leader has them.

    The id is -1 if there is none, None if it is unreadable.
    """
    await session.sync()
    holder, epoch = await session.get_many([znodes.CONTROLLER, znodes.CONTROLLER_EPOCH])
    number = 0 if epoch is None else decode_epoch(znodes.CONTROLLER_EPOCH, *epoch)
    if holder is None:
        return -1, number
    try:
        return znodes.decode_controller(holder[0]).id, number
    except msgspec.MsgspecError:
        return None, number


async def controller(session: ZkSession, watch: Callable[[], None]) -> ControllerRow | None:
    """Return the holder of `/controller` and watch it; the epoch, which it lacks, is 0."""
    node = await watched(session, znodes.CONTROLLER, watch)
    if node is None:
        return None
    try:
        holder = znodes.decode_controller(node)
    except msgspec.MsgspecError as problem:
        UNREADABLE.add(znodes.CONTROLLER, problem)
        return None
    UNREADABLE.discard(znodes.CONTROLLER)
    return ControllerRow(holder.id, holder.url, 0, holder.internal_url)


async def coordinator(session: ZkSession, watch: Callable[[], None]) -> ControllerRow | None:
    """Return the holder of `/consumers/coordinator` with its epoch, and watch it."""
    node = await watched(session, consumer_znodes.COORDINATOR, watch)
    if node is None:
        return None
    try:
        epoch, _ = await session.get(consumer_znodes.COORDINATOR_EPOCH)
        holder = consumer_znodes.decode(node, consumer_znodes.CoordinatorRegistration)
    except NoNode:
        return None
    except msgspec.MsgspecError as problem:
        UNREADABLE.add(consumer_znodes.COORDINATOR, problem)
        return None
    UNREADABLE.discard(consumer_znodes.COORDINATOR)
    number = node_number(epoch.decode(errors="replace"))
    if number is None:
        return None
    return ControllerRow(holder.id, holder.url, number, holder.internal_url)


async def watched(session: ZkSession, path: str, watch: Callable[[], None]) -> bytes | None:
    """Return a node's value, or None if it does not exist; watch for its change or creation."""
    if await session.exists(path, watch=watch) is None:
        return None
    try:
        return (await session.get(path))[0]
    except NoNode:
        return None
