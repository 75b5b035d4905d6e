"""The first administrator of a cluster, in a real ZooKeeper."""

from __future__ import annotations

import time

from leadline_cli.first_admin import make_admin
from leadline_common.access.rights import Action, Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, Token, hash_of, new_token
from leadline_common.access.users import USERS, User, Users, decode_user, encode_user, user_path
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession

OLD, NEW = (new_token(bytes([number]) * RANDOM_BYTES) for number in (1, 2))


def kept(token: Token) -> KeptToken:
    return KeptToken(token.id, hash_of(token), 0)


async def read(session: ZkSession) -> User:
    return decode_user((await session.get(user_path("admin")))[0])


async def write(session: ZkSession, user: User) -> None:
    await session.set(user_path("admin"), encode_user(user), ANY_VERSION)


def is_administrator(user: User, token: Token) -> bool:
    owner = Users.of({"admin": user}).owner_of(token, time.time_ns() // 1_000_000)
    return owner is not None and user.access.allows(Action.ADMINISTER, "cluster")


async def test_the_first_administrator_is_made_once(zk_chroot: str, zk_session: ZkSession) -> None:
    assert await make_admin(zk_chroot, None, "admin", OLD, restore=False)
    assert is_administrator(await read(zk_session), OLD)
    before = await zk_session.exists(USERS)
    assert await make_admin(zk_chroot, None, "admin", OLD, restore=False)
    assert await zk_session.exists(USERS) == before, "nothing was written"


async def test_a_revoked_token_is_not_revived(zk_chroot: str, zk_session: ZkSession) -> None:
    await make_admin(zk_chroot, None, "admin", OLD, restore=False)
    demoted = User((Grant.of_all(Role.VIEWER),), (kept(NEW),))
    await write(zk_session, demoted)
    assert not await make_admin(zk_chroot, None, "admin", OLD, restore=False)
    assert await read(zk_session) == demoted


async def test_a_deleted_user_is_not_made_again_with_its_old_token(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    await make_admin(zk_chroot, None, "admin", OLD, restore=False)
    await zk_session.delete(user_path("admin"), ANY_VERSION)
    assert not await make_admin(zk_chroot, None, "admin", OLD, restore=False)
    assert await zk_session.exists(user_path("admin")) is None
    assert await make_admin(zk_chroot, None, "admin", NEW, restore=True)
    assert is_administrator(await read(zk_session), NEW)


async def test_users_without_an_administrator_get_none_by_a_token_of_before(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    for path in ("/security", USERS, user_path("alice")):
        await zk_session.ensure_path(path)
    assert not await make_admin(zk_chroot, None, "admin", OLD, restore=False)


async def test_a_lost_administrator_is_restored_and_keeps_one_token(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    await make_admin(zk_chroot, None, "admin", OLD, restore=False)
    third = new_token(bytes(RANDOM_BYTES))
    await write(zk_session, User((Grant.of_all(Role.VIEWER),), (kept(OLD), kept(third))))
    assert await make_admin(zk_chroot, None, "admin", NEW, restore=True)
    restored = await read(zk_session)
    assert is_administrator(restored, NEW)
    assert [one.id for one in restored.tokens] == [third.id, NEW.id]
