"""Restricts the nodes of a namespace to the users of a session's credentials.

Nodes that Leadline creates have its ACL from the start. Two kinds do not: the root, which somebody
else created (it decides who may add and delete the nodes right below it), and the nodes of a
cluster that ran without credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from leadline_common.zk.errors import NoNode, NotPermitted
from leadline_common.zk.session import ZkSession

logger = structlog.get_logger(__name__)

ROOT: Final = "/"
_ANYONE: Final = "world:anyone"
_READ: Final = 1
_OF_ZOOKEEPER: Final = "/zookeeper"
_QUOTAS: Final = f"{_OF_ZOOKEEPER}/quota"
"""ZooKeeper's own nodes, below the root of the whole tree, and those of them that are open."""
_AT_ONCE: Final = 1_000


async def restrict_namespace(session: ZkSession) -> int:
    """Restrict every node to the users of the session's credentials, unless that is done.

    Returns how many nodes were restricted. The root comes last, so that an interrupted run is
    repeated. Without credentials nothing is changed.

    Raises:
        ZkError: ZooKeeper was lost, or the credentials do not suffice.

    """
    if not session.has_credentials:
        return 0
    restricted = await _restrict_own_nodes_of_zookeeper(session)
    if not await _is_open(session, ROOT):
        return restricted
    paths = [ROOT]
    while paths:
        below = [path for path in paths if path != ROOT]
        for start in range(0, len(below), _AT_ONCE):
            await asyncio.gather(*(_restrict(session, p) for p in below[start : start + _AT_ONCE]))
        restricted += len(below)
        paths = await _children_of(session, paths)
    await session.restrict(ROOT)
    logger.info("ZooKeeper's nodes are restricted to this cluster's users", nodes=restricted + 1)
    return restricted + 1


async def _restrict_own_nodes_of_zookeeper(session: ZkSession) -> int:
    """Restrict what ZooKeeper leaves open: anybody could fill its memory with nodes below it."""
    with suppress(NoNode):  # Within a chroot there is none.
        if await _is_open(session, _OF_ZOOKEEPER):
            for path in (_QUOTAS, _OF_ZOOKEEPER):
                await _restrict(session, path)
            return 2
    return 0


async def _is_open(session: ZkSession, path: str) -> bool:
    return (await session.acl_users(path)).get(_ANYONE, _READ) != _READ


async def _restrict(session: ZkSession, path: str) -> None:
    """Restrict one node; leave out one that was deleted, or that somebody else keeps."""
    try:
        await session.restrict(path)
    except NoNode:
        return
    except NotPermitted:
        logger.warning("a node has an ACL that does not let this cluster change it", path=path)


async def _children_of(session: ZkSession, paths: Sequence[str]) -> list[str]:
    lists = await session.get_children_many(paths)
    found = (
        f"{path.rstrip('/')}/{name}"
        for path, names in zip(paths, lists, strict=True)
        for name in names or ()
    )
    return [path for path in found if path != _OF_ZOOKEEPER]
