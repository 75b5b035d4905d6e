"""Fixtures: a real ZooKeeper for the whole run, and a part of it for each test."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from kazoo.client import KazooClient

from leadline_common.zk.ops import CreateOp
from leadline_common.zk.session import ZkSession
from leadline_common.zk.transport import KazooTransport
from leadline_common.znodes import BROKER_IDS, BrokerRegistration, broker_id_path, encode_value
from tests.support.embedded_zookeeper import EmbeddedZooKeeper

SESSION_TIMEOUT_MS = 4000
PATIENT_SESSION_MS = 30_000
"""That of a session whose end no test waits for: a busy machine does not end it."""


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """Yield a running single-node ZooKeeper; tests share it and must not stop it."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zk_chroot(zookeeper: EmbeddedZooKeeper) -> str:
    """Return `host:port/chroot` with a chroot that no other test uses; `start` creates it."""
    return f"{zookeeper.hosts}/test-{uuid.uuid4().hex}"


@pytest.fixture
async def zk_session(zk_chroot: str) -> AsyncIterator[ZkSession]:
    """Yield a session that sees only this test's nodes."""
    session = ZkSession()
    await session.start(zk_chroot, PATIENT_SESSION_MS)
    yield session
    await session.close()


async def until(condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    """Wait until `condition()` holds.

    Raises:
        AssertionError: it did not in `deadline_s` seconds; the message says `what`.

    """
    give_up = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up, f"not in {deadline_s} s: {what}"
        await asyncio.sleep(0.005)


async def expire(session: ZkSession, hosts: str) -> None:
    """End a session without its owner: another connection takes it over and closes it."""
    transport = session._transport
    assert isinstance(transport, KazooTransport)
    await asyncio.to_thread(_take_over_and_close, hosts, transport._client.client_id)


def _take_over_and_close(hosts: str, client_id: tuple[int, bytes] | None) -> None:
    thief = KazooClient(hosts, client_id=client_id)
    thief.start_async().wait(10)
    thief.stop()
    thief.close()


async def register_newer_broker(session: ZkSession) -> None:
    """Register broker 2 of a release that speaks none of this release's protocol versions."""
    await session.ensure_path(BROKER_IDS)
    newer = BrokerRegistration(
        2, "h", 1, "http://h:1", None, 1, release="9.0.0", oldest_protocol=8, newest_protocol=9
    )
    path = broker_id_path(2)
    await session.multi([CreateOp(path, encode_value(newer), ephemeral=True)])
