"""What a service knows of the cluster's users, and says when it has not read them for long."""

from __future__ import annotations

import asyncio

from leadline_common.access.users import USERS, User, encode_user, user_path
from leadline_common.user_directory import LATE_S, UserDirectory
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from tests.support.services.zookeeper import until


async def test_who_has_not_read_the_users_for_long_says_so_and_goes_on(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    for path in ("/security", USERS, user_path("alice")):
        await zk_session.ensure_path(path)
    await zk_session.set(user_path("alice"), encode_user(User(created_ms=1)), ANY_VERSION)
    now_s = 100.0
    directory = UserDirectory(zk_chroot, 10_000, None, monotonic_s=lambda: now_s)
    assert [one.serving for one in directory.problems()] == [False]
    following = asyncio.create_task(directory.run())
    try:
        await until(lambda: directory.users is not None, "it has read the users")
        now_s += LATE_S - 1
        assert not list(directory.problems())
    finally:  # As if it were cut off: nothing is read from here on.
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    now_s += LATE_S + 1
    [late] = directory.problems()
    assert late.serving
    assert "users" in late.reason
    assert directory.users is not None
    assert "alice" in directory.users.by_name
    following = asyncio.create_task(directory.run())
    try:
        await until(lambda: not list(directory.problems()), "it has read them again")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
