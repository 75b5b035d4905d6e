"""Session and registration of this broker, and the holder of `/controller` (rule R9).

Losing the session removes the registration. The broker then leaves every role at once and
registers again, in a new incarnation, fenced until the controller has granted its roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import structlog

from leadline_broker.domain.state import Directories
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.ports import ClusterStore, Registration
from leadline_client.backoff import Backoff
from leadline_common.process_errors import CannotRun
from leadline_common.rpc import ControllerRow
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import BrokerRegistration

logger = structlog.get_logger(__name__)

_ANSWER_S: Final = 0.5
"""How long a command waits for the answer to the registration that it was sent for."""


class SupersededError(CannotRun):
    """Another process has registered under this broker's id; this process must stop."""


class ClusterReplacedError(CannotRun):
    """ZooKeeper has another cluster now, to which this broker's logs do not belong."""


@dataclass(eq=False)
class BrokerRegistrar:
    """Keeps this broker registered. Owned by the event loop.

    `rack`, `settings` and what `directories()` returns are part of the registration.
    `on_fenced()` is called as soon as the session is known to have ended, before anything else;
    `on_registered()` after each registration. `problem` is why the last attempt to connect or
    register has failed, until one succeeds.
    """

    store: ClusterStore
    broker_state: BrokerState
    rack: str | None
    settings: Mapping[str, str]
    random: Random
    directories: Callable[[], Awaitable[Directories]]
    on_fenced: Callable[[], None]
    on_registered: Callable[[], None]
    cluster_id: str = field(default="", init=False)
    problem: str = field(default="", init=False)
    _lost: bool = field(default=False, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _answered: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    controller: ControllerRow | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.random.random, first_ms=100, longest_ms=2_000)
        self._answered.set()

    async def connect(self) -> str:
        """Start a session, retrying until it succeeds, and return the cluster's id."""
        while True:
            try:
                await self.store.connect(self._session_lost, self._wake.set)
                cluster_id = await self.store.cluster_id()
            except ZkError as error:
                await self._pause("no session with ZooKeeper", error)
            else:
                self._succeeded()
                self.cluster_id = cluster_id
                return cluster_id

    async def register(self) -> None:
        """Register in the current session or a new one, retrying until it succeeds.

        Raises:
            ClusterReplacedError: ZooKeeper has another cluster now.
            StorageFailed: the log directory is an older copy, and could not be given a new id.

        """
        while True:
            try:
                if self._lost:
                    self._lost = False
                    await self.store.close()
                    await self.store.connect(self._session_lost, self._wake.set)
                    self._check_cluster(await self.store.cluster_id())
                registration = await self._register()
            except ZkError as error:
                self._lost = True
                await self._pause("not registered", error)
                continue
            if registration is None:
                continue
            self._succeeded()
            logger.info(
                "registered",
                incarnation=registration.incarnation,
                directory_epoch=registration.directory_epoch,
                url=self.broker_state.url,
            )
            self._wake.set()
            self.on_registered()
            return

    async def _register(self) -> BrokerRegistration | None:
        """Register in the current session; return None if that has ended meanwhile."""
        self._answered.clear()
        try:
            directories = await self.directories()
            registration = await self.store.register(
                self.broker_state.addresses, self.rack, self.settings, directories
            )
            if self._lost:
                return None
            self.broker_state.registered(registration)
            return registration
        finally:
            self._answered.set()

    async def answered(self) -> None:
        """Wait, for a short time, until no registration is under way.

        The controller may see a registration before this broker knows that it has succeeded.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                await self._answered.wait()

    async def run(self) -> None:
        """Watch the registration and the controller; register again when necessary.

        Raises:
            SupersededError: another process has registered under this id.
            ClusterReplacedError: ZooKeeper has another cluster now.

        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._lost:
                await self._check()
            if self._lost:
                await self.register()

    async def _check(self) -> None:
        """Read the controller and the registration."""
        try:
            self.controller = await self.store.controller()
            registration = Registration(await self.store.registration())
        except ZkError as error:
            # After reconnecting, the session calls `on_hint` or `on_lost`.
            logger.info("registration not read", error=str(error))
            return
        if registration is Registration.REPLACED:
            raise SupersededError(
                f"another process has registered as broker {self.broker_state.broker_id}"
            )
        if registration is Registration.GONE:
            logger.warning("registration gone")
            self._session_lost()

    def _check_cluster(self, found: str) -> None:
        """Refuse to register in another cluster: its controller would discard every replica."""
        if found != self.cluster_id:
            raise ClusterReplacedError(
                f"this broker belongs to cluster {self.cluster_id}, but ZooKeeper has cluster "
                f"{found} now: restore ZooKeeper's data (`leadline cluster restore`), or start "
                "with an empty log directory"
            )

    def register_again(self) -> None:
        """Give up the session, and register in a new one with the directories of now."""
        self._session_lost()

    def _session_lost(self) -> None:
        """Fence the broker at once; `run` registers it again."""
        if not self._lost:
            self._lost = True
            logger.warning("session lost", incarnation=self.broker_state.incarnation)
            self.broker_state.fence()
            self.on_fenced()
        self._wake.set()

    def _succeeded(self) -> None:
        self._backoff.reset()
        self.problem = ""

    async def _pause(self, event: str, error: ZkError) -> None:
        pause_ms = self._backoff.next_ms()
        self.problem = str(error) or type(error).__name__
        logger.warning(event, error=self.problem, pause_ms=round(pause_ms))
        await asyncio.sleep(pause_ms / 1000)
