"""Processes of a release that cannot speak with what is registered end, and say why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from leadline_common.consumer_znodes import COORDINATOR
from leadline_common.identity import ServiceIdentity
from leadline_common.tcp_ports import free_port
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import CONTROLLER
from tests.support.services.identities import credentials_for
from tests.support.services.up import command_line
from tests.support.services.zookeeper import register_newer_broker

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["controller", "coordinator"])
async def test_it_ends_before_it_leads(
    kind: str, zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    await register_newer_broker(zk_session)
    settings = {
        f"{kind}.id": 7,
        "zookeeper.connect": zk_chroot,
        "listen.port": free_port(),
        **credentials_for(ServiceIdentity("controller", 7)),
    }
    del settings["zookeeper.credentials.file"]  # the test reads the nodes as nobody
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(
        *command_line(kind, *words),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 1, said.decode()
    assert "broker 2 (release 9.0.0) speaks 8 to 9" in said.decode()
    for path in (CONTROLLER, COORDINATOR):
        assert await zk_session.exists(path) is None
