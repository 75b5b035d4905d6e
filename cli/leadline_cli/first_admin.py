"""The first user of a cluster with authentication: an administrator, written into ZooKeeper.

Every other user is made through the API, which takes an administrator.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from leadline_cli.credentials import Credentials
from leadline_cli.secure_cluster import token_in_file
from leadline_common import znodes
from leadline_common.access.principals import check_user_name
from leadline_common.access.rights import Action, Grant, Role
from leadline_common.access.tokens import KeptToken, Token, hash_of
from leadline_common.access.users import USERS, User, decode_user_or_empty, encode_user, user_path
from leadline_common.audit_outbox import audit_op
from leadline_common.cause import new_cause
from leadline_common.identity import UnusableCredentials
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.ops import ANY_VERSION, CreateOp, Op, SetOp
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry

ADMIN: Final = "admin"
"""The name of the administrator that `leadline up --secure` makes."""
_SESSION_TIMEOUT_MS: Final = 10_000


async def make_administrator(
    credentials: Credentials, zookeeper: str, *, is_new_token: bool
) -> None:
    """Make the user of `admin.token` in a cluster that has never had a user.

    A token that was revoked stays so, and that of a deleted user, too. Only a new one, because its
    file was missing, makes the user an administrator again.

    Raises:
        UnusableCredentials: a file has something else than it should, or a token that is not valid.
        LeadlineError: ZooKeeper cannot be used.
        OSError: a file cannot be read or written.

    """
    token = token_in_file(credentials.admin_token)
    login = credentials.zookeeper_administrator()
    if not await make_admin(zookeeper, login, ADMIN, token, restore=is_new_token):
        raise UnusableCredentials(
            f"the token in {credentials.admin_token} is no valid one of user {ADMIN}: write a "
            "valid one into it, or remove the file, so that a new one is made"
        )


async def make_admin(
    hosts: str, credentials: ZkCredentials | None, name: str, token: Token, *, restore: bool
) -> bool:
    """Make an administrator with a token; return whether the token is one of the user then.

    Without `restore`, only the very first user is made. With it, a user that is missing is made in
    any case, and one that exists gets the role and the token, and keeps one other token.

    Raises:
        InvalidRequest: the name has characters that names do not have.
        ZkError: ZooKeeper was lost, or `credentials` do not suffice.

    """
    check_user_name(name)
    session = ZkSession(credentials=credentials)
    await session.start(hosts, _SESSION_TIMEOUT_MS)
    try:
        for path in ("/security", USERS):
            await session.ensure_path(path)
        stat = await session.exists(USERS)
        (found,) = await session.get_many([user_path(name)])
        now_ms = time.time_ns() // 1_000_000
        before = User(created_ms=now_ms) if found is None else decode_user_or_empty(found[0])
        if any(kept.matches(token) and kept.is_alive(now_ms) for kept in before.tokens):
            return True
        # A user that is missing where there have been users was deleted, and its tokens with it.
        if not restore and (found is not None or stat is None or stat.cversion > 0):
            return False
        value = encode_user(_administrator(before, token, now_ms))
        write: Op = CreateOp(user_path(name), value)
        if found is not None:
            write = SetOp(user_path(name), value, found[1].version)
        audit = await _audit(session, name, now_ms)
        await session.multi([write, SetOp(USERS, b"", ANY_VERSION), *audit])
        return True
    finally:
        await session.close()


def _administrator(user: User, token: Token, now_ms: int) -> User:
    """Return the user with the role and the token, and with the newest of its other tokens."""
    if not user.access.allows(Action.ADMINISTER, "cluster"):
        user = user.granted([*user.grants, Grant.of_all(Role.ADMIN)])
    user = msgspec.structs.replace(user, tokens=user.tokens[-1:])
    return user.with_token(KeptToken(token.id, hash_of(token), now_ms), now_ms)


async def _audit(session: ZkSession, name: str, now_ms: int) -> list[Op]:
    """Return the audit entry, none in a ZooKeeper where no controller has been yet."""
    if await session.exists(znodes.AUDIT) is None:
        return []
    entry = AuditEntry(
        now_ms, new_cause(), "zookeeper operator", "administrator_made", resource={"user": name}
    )
    return [audit_op(entry)]
