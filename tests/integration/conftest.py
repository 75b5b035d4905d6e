"""Controllers for integration tests: they run in the test's process, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.services.controller_rig import Rig


@pytest.fixture
async def rig(zk_chroot: str) -> AsyncIterator[Rig]:
    """Yield a rig on a ZooKeeper chroot of its own."""
    made = Rig(zk_chroot)
    yield made
    await made.stop()
