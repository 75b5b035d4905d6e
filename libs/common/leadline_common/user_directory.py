"""All users of the cluster as ZooKeeper has them: read at the start, and again when they change.

It has a ZooKeeper session of its own, so that neither its reads nor its end touch the session on
which a service's leadership or registration depends. While ZooKeeper cannot be reached, what was
read last stays in use, and the service says so: it does not know who has lost a right since.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
import structlog

from leadline_client.clock import monotonic_s
from leadline_common.access.users import USERS, User, Users, decode_user, user_path
from leadline_common.http.access import Authentication
from leadline_common.http.app import ServiceApp
from leadline_common.http.issuer import issuer_of, reading_keys
from leadline_common.identity import Kind
from leadline_common.keep_running import keep_running
from leadline_common.problems import Problem
from leadline_common.settings import ServiceSettings
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.session import ZkSession

logger = structlog.get_logger(__name__)

CHECK_INTERVAL_S: Final = 5.0
"""How often it checks whether users have changed: watches are hints (rule R8)."""

LATE_S: Final = 60.0
"""After how long without a read the service says that it may not know of changes."""


@asynccontextmanager
async def authentication_in(
    app: ServiceApp,
    settings: ServiceSettings,
    credentials: ZkCredentials | None,
    forwarders: Iterable[Kind] = (),
) -> AsyncIterator[None]:
    """Let an application find its callers, and their quotas, within the `with` statement.

    `forwarders` are the kinds of services that forward requests to this one. Until it has
    read the users for the first time, the service is not ready.

    Raises:
        UnusableCredentials: what the settings say of an issuer of tokens cannot be used.

    """
    issuer = issuer_of(settings)
    if settings.authentication == "none":
        yield
        return
    directory = UserDirectory(
        settings.zookeeper_connect, settings.zookeeper_session_timeout_ms, credentials
    )
    app.authentication = Authentication(
        required=True,
        users=lambda: directory.users,
        forwarders=frozenset(forwarders),
        issued_to=issuer.user_of if issuer is not None else None,
    )
    app.quotas.users = lambda: directory.users
    app.checks.append(directory.problems)
    if issuer is not None:
        app.checks.append(issuer.problems)
    following = asyncio.create_task(directory.run(), name="user-directory")
    try:
        async with reading_keys(issuer):
            yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


class UserDirectory:
    """The users of a cluster. `users` is None until they were read for the first time."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        credentials: ZkCredentials | None,
        monotonic_s: Callable[[], float] = monotonic_s,
    ) -> None:
        self._hosts = hosts
        self._session_timeout_ms = session_timeout_ms
        self._credentials = credentials
        self._monotonic_s = monotonic_s
        self._read_s = float("-inf")
        self._changed = asyncio.Event()
        self._seen: tuple[int, int] | None = None
        self.users: Users | None = None

    def problems(self) -> Iterator[Problem]:
        """Yield why nobody can be authenticated, or not as ZooKeeper now says."""
        late_s = self._monotonic_s() - self._read_s
        if self.users is None:
            yield Problem("the cluster's users were not read from ZooKeeper yet")
        elif late_s > LATE_S:
            yield Problem(
                f"the cluster's users were last read {late_s:.0f} s ago: tokens and grants that "
                "were taken since are in force here",
                serving=True,
            )

    async def run(self) -> None:
        """Keep `users` up to date until this is cancelled."""
        await keep_running(self._follow, "user-directory")

    async def _follow(self) -> None:
        """Follow changes on one session, until it fails."""
        session = ZkSession(on_reconnected=self._changed.set, credentials=self._credentials)
        await session.start(self._hosts, self._session_timeout_ms)
        self._seen = None
        try:
            while True:
                self._changed.clear()
                await self._read(session)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_INTERVAL_S):
                        await self._changed.wait()
        finally:
            await session.close()

    async def _read(self, session: ZkSession) -> None:
        """Read all users if one has changed since the last time.

        The version is read first: what changes meanwhile fires the watch, and is read again.
        """
        asked_s = self._monotonic_s()
        stat = await session.exists(USERS, watch=self._changed.set)
        seen = (stat.mzxid, stat.version) if stat is not None else (-1, -1)
        if seen == self._seen:
            self._read_s = asked_s
            return
        names = sorted(await session.get_children(USERS)) if stat is not None else []
        found = await session.get_many([user_path(name) for name in names])
        users = {
            name: user
            for name, value in zip(names, found, strict=True)
            if value is not None and (user := _decoded(name, value[0])) is not None
        }
        self.users, self._seen, self._read_s = Users.of(users), seen, asked_s


def _decoded(name: str, data: bytes) -> User | None:
    """Return a user, None if its node has no valid value: it then has no rights."""
    try:
        return decode_user(data)
    except msgspec.MsgspecError as problem:
        logger.warning("a user's node cannot be read", user=name, reason=str(problem))
        return None
