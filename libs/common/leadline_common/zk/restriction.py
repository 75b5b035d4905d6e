"""Gives the nodes of a namespace the ACLs of `zk.node_acls`, for the users of a session.

Nodes that Leadline creates have them from the start. Others do not: the root, which somebody else
created (it decides who may add and delete the nodes right below it), the nodes of a cluster that
ran without credentials or with those of an earlier release, and those whose users are replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from leadline_common.zk.errors import NoNode, NotPermitted
from leadline_common.zk.node_acls import ADMIN, ANYONE, acl_of
from leadline_common.zk.session import ZkSession

logger = structlog.get_logger(__name__)

ROOT: Final = "/"
OF_ZOOKEEPER: Final = "/zookeeper"
_QUOTAS: Final = f"{OF_ZOOKEEPER}/quota"
"""ZooKeeper's own nodes, below the root of the whole tree, and those of them that are open."""
_AT_ONCE: Final = 1_000


@dataclass(slots=True)
class Restriction:
    """The outcome: nodes that were (or, in a dry run, would be) changed, were right, and refused.

    `refused` are paths of nodes whose ACL does not let the session change it.
    """

    changed: int
    unchanged: int
    refused: list[str]


async def restrict_namespace(session: ZkSession) -> int:
    """Restrict all nodes to the users of the session's credentials if strangers can use the root.

    Returns how many nodes were changed. Without credentials nothing is changed.

    Raises:
        ZkError: ZooKeeper was lost.

    """
    credentials = session.credentials
    if credentials is None:
        return 0
    try:
        open_to_all = (await session.acl_users(ROOT)).get(ANYONE, 0)
    except NotPermitted:
        open_to_all = 0
    if open_to_all in (0, acl_of(ROOT, credentials.users).get(ANYONE, 0)):
        return 0
    if not (open_to_all & ADMIN or credentials.is_administrator):
        logger.warning("strangers can read ZooKeeper's nodes: run `leadline credentials restrict`")
        return 0
    done = await apply_acls(session)
    logger.info("ZooKeeper's nodes are restricted to this cluster's users", nodes=done.changed)
    return done.changed


async def apply_acls(session: ZkSession, *, dry_run: bool = False) -> Restriction:
    """Give every node its ACL for the users of the session's credentials, unless it has that.

    Each node changes by itself, the root last, so an interrupted run can be repeated. Nodes that
    somebody else keeps are left alone.

    Raises:
        ZkError: ZooKeeper was lost.

    """
    done = Restriction(0, 0, [])
    paths = [ROOT]
    while paths:
        below = [path for path in paths if path != ROOT]
        await _apply_to(session, below, done, dry_run=dry_run)
        paths = await _children_of(session, paths)
    with suppress(NoNode):  # Within a chroot there is none.
        await session.acl_users(OF_ZOOKEEPER)
        await _apply_to(session, [_QUOTAS, OF_ZOOKEEPER], done, dry_run=dry_run)
    await _apply_to(session, [ROOT], done, dry_run=dry_run)
    return done


async def _apply_to(
    session: ZkSession, paths: Sequence[str], done: Restriction, *, dry_run: bool
) -> None:
    for start in range(0, len(paths), _AT_ONCE):
        batch = paths[start : start + _AT_ONCE]
        await asyncio.gather(*(_apply_one(session, path, done, dry_run=dry_run) for path in batch))


async def _apply_one(session: ZkSession, path: str, done: Restriction, *, dry_run: bool) -> None:
    users = session.credentials.users if session.credentials else (ANYONE,)
    try:
        if await session.acl_users(path) == acl_of(path, users):
            done.unchanged += 1
            return
        if not dry_run:
            await session.restrict(path)
        done.changed += 1
    except NoNode:
        return  # It was deleted meanwhile.
    except NotPermitted:
        done.refused.append(path)
        logger.warning("a node has an ACL that does not let this user change it", path=path)


async def _children_of(session: ZkSession, paths: Sequence[str]) -> list[str]:
    lists = await asyncio.gather(*(_children(session, path) for path in paths))
    found = (
        f"{path.rstrip('/')}/{name}"
        for path, names in zip(paths, lists, strict=True)
        for name in names
    )
    return [path for path in found if path != OF_ZOOKEEPER]


async def _children(session: ZkSession, path: str) -> list[str]:
    """Return the children of one node; none if it was deleted, or somebody else keeps it."""
    try:
        return await session.get_children(path)
    except (NoNode, NotPermitted):
        return []
