"""Being a member of the cluster: session, registration, and who the controller is (rule R9).

A session that is lost takes the registration with it. The broker then leaves every
role at once and registers anew, in a new incarnation, fenced again until the
controller has granted it its roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random

import structlog

from leadline_broker.runtime.backoff import Backoff
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.ports import ClusterStore, Registration
from leadline_client.wire import ControllerInfo
from leadline_common.zk.errors import ZkError

logger = structlog.get_logger(__name__)


class SupersededError(Exception):
    """Another process registered under this broker's id: this one must end."""


class BrokerRegistrar:
    """Keeps this broker registered. Owned by the event loop.

    `rack` and `settings` go into the registration. `on_fenced()` is called the
    moment the session is known to be over, before anything else; `on_registered()`
    after each registration.
    """

    def __init__(
        self,
        store: ClusterStore,
        broker_state: BrokerState,
        *,
        rack: str | None,
        settings: Mapping[str, str],
        random: Random,
        on_fenced: Callable[[], None],
        on_registered: Callable[[], None],
    ) -> None:
        self._store = store
        self._broker_state = broker_state
        self._rack = rack
        self._settings = settings
        self._backoff = Backoff(random, first_ms=100, longest_ms=2_000)
        self._on_fenced = on_fenced
        self._on_registered = on_registered
        self._lost = False
        self._wake = asyncio.Event()
        self.controller: ControllerInfo | None = None

    async def connect(self) -> str:
        """Begin a session, however long that takes, and return the cluster's id."""
        while True:
            try:
                await self._store.connect(self._session_lost, self._wake.set)
                cluster_id = await self._store.cluster_id()
            except ZkError as error:
                await self._pause("no session with ZooKeeper", error)
            else:
                self._backoff.reset()
                return cluster_id

    async def register(self) -> None:
        """Register, however long that takes, in the present session or a new one."""
        while True:
            try:
                if self._lost:
                    self._lost = False
                    await self._store.close()
                    await self._store.connect(self._session_lost, self._wake.set)
                incarnation = await self._store.register(
                    self._broker_state.url, self._rack, self._settings
                )
            except ZkError as error:
                self._lost = True
                await self._pause("not registered", error)
                continue
            if self._lost:
                continue
            self._backoff.reset()
            self._broker_state.registered(incarnation)
            logger.info("registered", incarnation=incarnation, url=self._broker_state.url)
            self._wake.set()
            self._on_registered()
            return

    async def run(self) -> None:
        """Follow what happens to the registration and to the controller, for ever.

        Raises:
            SupersededError: another process has registered under this id.

        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._lost:
                await self._look()
            if self._lost:
                await self.register()

    async def _look(self) -> None:
        """Read again what was hinted at."""
        try:
            self.controller = await self._store.controller()
            registration = Registration(await self._store.registration())
        except ZkError as error:
            # Back in touch the session hints again, or tells that it is lost.
            logger.info("hint not followed", error=str(error))
            return
        if registration is Registration.ANOTHERS:
            raise SupersededError(
                f"another process has registered as broker {self._broker_state.broker_id}"
            )
        if registration is Registration.GONE:
            logger.warning("registration gone")
            self._session_lost()

    def _session_lost(self) -> None:
        """Stop acting at once; the rest is done by `run`."""
        if not self._lost:
            self._lost = True
            logger.warning("session lost", incarnation=self._broker_state.incarnation)
            self._broker_state.fence()
            self._on_fenced()
        self._wake.set()

    async def _pause(self, what: str, error: ZkError) -> None:
        pause_ms = self._backoff.next_ms()
        logger.warning(what, error=str(error) or type(error).__name__, pause_ms=round(pause_ms))
        await asyncio.sleep(pause_ms / 1000)
