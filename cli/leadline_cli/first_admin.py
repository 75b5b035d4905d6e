"""The first user of a cluster with authentication: an administrator, written into ZooKeeper.

Every other user is made through the API, which takes an administrator.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from leadline_cli.credentials import Credentials
from leadline_cli.secure_cluster import token_in_file
from leadline_common.access.principals import check_user_name
from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import KeptToken, Token, hash_of
from leadline_common.access.users import USERS, User, decode_user, encode_user, user_path
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.ops import ANY_VERSION, CreateOp, Op, SetOp
from leadline_common.zk.session import ZkSession

ADMIN: Final = "admin"
"""The name of the administrator that `leadline up --secure` makes."""
_SESSION_TIMEOUT_MS: Final = 10_000


async def make_administrator(credentials: Credentials, zookeeper: str) -> None:
    """Let the token in `admin.token` be that of an administrator; make it if it is not there.

    Raises:
        UnusableCredentials: a file has something else than it should.
        LeadlineError: the administrator has other tokens, or ZooKeeper cannot be used.
        OSError: a file cannot be read or written.

    """
    token = token_in_file(credentials.admin_token)
    await make_admin(zookeeper, credentials.zookeeper_administrator(), ADMIN, token)


async def make_admin(
    hosts: str, credentials: ZkCredentials | None, name: str, token: Token
) -> bool:
    """Let a token be that of an administrator; return whether anything was changed.

    A user of this name keeps its other tokens, and its grants if one is that of an administrator.

    Raises:
        InvalidRequest: the name has characters that names do not have.
        PolicyViolation: the user has as many tokens as one may have.
        ZkError: ZooKeeper was lost, or `credentials` do not suffice.

    """
    check_user_name(name)
    session = ZkSession(credentials=credentials)
    await session.start(hosts, _SESSION_TIMEOUT_MS)
    try:
        for path in ("/security", USERS):
            await session.ensure_path(path)
        (found,) = await session.get_many([user_path(name)])
        now_ms = time.time_ns() // 1_000_000
        before = User(created_ms=now_ms) if found is None else _decoded(found[0])
        after = _with_token(before, token, now_ms)
        if found is not None and after == before:
            return False
        value = encode_user(after)
        write: Op = CreateOp(user_path(name), value)
        if found is not None:
            write = SetOp(user_path(name), value, found[1].version)
        await session.multi([write, SetOp(USERS, b"", ANY_VERSION)])
        return True
    finally:
        await session.close()


def _with_token(user: User, token: Token, now_ms: int) -> User:
    if Role.ADMIN not in {grant.role for grant in user.grants if grant.is_unlimited}:
        user = user.granted([*user.grants, Grant(Role.ADMIN)])
    if any(kept.matches(token) and kept.is_alive(now_ms) for kept in user.tokens):
        return user
    return user.with_token(KeptToken(token.id, hash_of(token), now_ms), now_ms)


def _decoded(data: bytes) -> User:
    try:
        return decode_user(data)
    except msgspec.MsgspecError:
        return User()
