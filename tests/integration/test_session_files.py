"""Sessions that killed processes left, closed by their files, on a real ZooKeeper.

The sessions time out after a minute, so that whatever is gone earlier was closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from leadline_cli.processes import Child, wait_for_end
from leadline_common.identity import UnusableCredentials
from leadline_common.settings import CoordinatorSettings
from leadline_common.zk import session_file
from leadline_common.zk.session import ZkSession
from leadline_common.zk.session_file import (
    SessionFileInUse,
    SessionNotClosed,
    StoredSession,
    close_left_session,
    running_kernel,
    stored_transport,
)
from tests.support.freezing import freeze
from tests.support.services.cluster import wait_until
from tests.support.services.session_owner import SESSION_TIMEOUT_MS
from tests.support.services.up import command_line

NODE = "/owned"
DEADLINE_S = 10


@contextmanager
def owner(hosts: str, file: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that owns `NODE`, until it is killed."""
    words = ["-m", "tests.support.services.session_owner", hosts, NODE, str(file)]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "ready\n" in iter(process.stdout.readline, "")
            yield process
        finally:
            process.kill()


def settings_for(hosts: str, file: Path) -> CoordinatorSettings:
    return CoordinatorSettings(
        coordinator_id=2, zookeeper_connect=hosts, zookeeper_session_file=str(file)
    )


async def test_the_session_of_a_killed_process_is_closed(
    zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    file = tmp_path / "sessions" / "coordinator-1"
    with owner(zk_chroot, file) as process:
        found = await zk_session.exists(NODE)
        process.kill()
        process.wait()
        left = await close_left_session(file)
    assert found is not None
    assert left is not None
    assert left.identity[0] == found.ephemeral_owner
    assert await zk_session.exists(NODE) is None
    assert await close_left_session(file) is None  # once


async def test_a_frozen_process_keeps_its_session(
    zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    file = tmp_path / "session"
    with owner(zk_chroot, file) as process:
        freeze(process.pid)
        for _ in range(50):
            with pytest.raises(SessionFileInUse):
                await close_left_session(file)
        process.send_signal(signal.SIGCONT)
        assert await zk_session.exists(NODE) is not None


async def test_the_next_process_closes_what_its_predecessor_left(
    zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    file = tmp_path / "session"
    with owner(zk_chroot, file) as process:
        process.kill()
        process.wait()
        with owner(zk_chroot, file):  # it can create the same node
            assert await zk_session.exists(NODE) is not None


async def test_a_second_process_is_refused_while_the_first_one_lives(
    zk_chroot: str, zk_session: ZkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_file, "_LOCK_WITHIN_S", 0.1)
    file = tmp_path / "session"
    with owner(zk_chroot, file):
        with pytest.raises(UnusableCredentials, match="has not ended"):
            await stored_transport(settings_for(zk_chroot, file))
        assert await zk_session.exists(NODE) is not None


async def test_a_session_that_has_expired_is_nothing_to_close(
    zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    file = tmp_path / "session"
    with owner(zk_chroot, file) as process:
        process.kill()
        process.wait()
    before = file.read_bytes()
    await close_left_session(file)
    file.write_bytes(before)
    assert await close_left_session(file) is not None
    assert file.read_bytes() == b""


async def test_a_wrong_password_closes_nothing(
    zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    file, copy = tmp_path / "session", tmp_path / "copy"
    with owner(zk_chroot, file):
        stored = msgspec.json.decode(file.read_bytes(), type=StoredSession)
        forged = msgspec.structs.replace(stored, password="00" * 16)
        copy.write_bytes(msgspec.json.encode(forged))
        await close_left_session(copy)
        assert await zk_session.exists(NODE) is not None


async def test_a_closed_session_leaves_an_empty_private_file(
    zk_chroot: str, tmp_path: Path
) -> None:
    file = tmp_path / "session"
    session = ZkSession(open_transport=await stored_transport(settings_for(zk_chroot, file)))
    await session.start(zk_chroot, SESSION_TIMEOUT_MS)
    stored = msgspec.json.decode(file.read_bytes(), type=StoredSession)
    assert stored.identity[0] == session.session_id
    assert stored.pid == os.getpid()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await session.close()
    assert file.read_bytes() == b""


class HangingDisk:
    """Lets writes of session files wait, as for a disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hangs = False
        self.goes_on = threading.Event()
        self._real = session_file._write
        monkeypatch.setattr(session_file, "_write", self._write)

    def _write(self, path: Path, content: bytes) -> None:
        if self.hangs:
            self.goes_on.wait(DEADLINE_S * 3)
        self._real(path, content)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDisk]:
    hanging = HangingDisk(monkeypatch)
    yield hanging
    hanging.goes_on.set()


@pytest.mark.parametrize("hangs_at_start", [False, True])
async def test_a_disk_that_hangs_keeps_neither_the_session_nor_the_loop(
    zk_chroot: str,
    zk_session: ZkSession,
    tmp_path: Path,
    disk: HangingDisk,
    monkeypatch: pytest.MonkeyPatch,
    hangs_at_start: bool,
) -> None:
    monkeypatch.setattr(session_file, "_ANSWERS_WITHIN_S", 0.1)
    file = tmp_path / "session"
    session = ZkSession(open_transport=await stored_transport(settings_for(zk_chroot, file)))
    disk.hangs = hangs_at_start
    async with asyncio.timeout(DEADLINE_S):
        await session.start(zk_chroot, SESSION_TIMEOUT_MS)
        await session.create(NODE, b"", ephemeral=True)
        disk.hangs = True
        await session.close()
    assert not disk.goes_on.is_set()
    assert await zk_session.exists(NODE) is None

    disk.goes_on.set()

    async def is_empty() -> bool:
        return file.read_bytes() == b""

    await wait_until(is_empty, "the session is removed after it was written")


async def test_a_disk_that_goes_on_writes_the_session(
    zk_chroot: str, tmp_path: Path, disk: HangingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_file, "_ANSWERS_WITHIN_S", 0.1)
    file = tmp_path / "session"
    session = ZkSession(open_transport=await stored_transport(settings_for(zk_chroot, file)))
    disk.hangs = True
    await session.start(zk_chroot, SESSION_TIMEOUT_MS)
    assert file.read_bytes() == b""
    disk.goes_on.set()

    async def is_stored() -> bool:
        return f'"session":"{session.session_id:x}"'.encode() in file.read_bytes()

    await wait_until(is_stored, "the session is in its file")
    await session.close()


async def test_a_session_of_another_host_is_left_to_expire(
    zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    """The lock of a process on another host is not seen here, so nothing proves its death."""
    file, moved = tmp_path / "session", tmp_path / "moved"
    with owner(zk_chroot, file):
        stored = msgspec.json.decode(file.read_bytes(), type=StoredSession)
        content = msgspec.json.encode(msgspec.structs.replace(stored, kernel="another"))
        moved.write_bytes(content)
        with pytest.raises(SessionNotClosed, match="another host"):
            await close_left_session(moved)
        assert moved.read_bytes() == content
        assert await zk_session.exists(NODE) is not None


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"session": 1}', b"\xff", b"null"])
async def test_an_unreadable_file_is_left_to_the_timeout(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "session"
    file.write_bytes(content)
    with pytest.raises(SessionNotClosed, match="is damaged"):
        await close_left_session(file)


@pytest.mark.parametrize("field", ["session", "password"])
async def test_text_that_is_not_hexadecimal_is_unreadable(tmp_path: Path, field: str) -> None:
    stored = StoredSession("1", "00", "127.0.0.1:1", 1, running_kernel())
    file = tmp_path / "session"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(stored, **{field: "xyz"})))
    with pytest.raises(SessionNotClosed, match="is damaged"):
        await close_left_session(file)


async def test_a_session_that_zookeeper_cannot_have_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(session_file, "KazooTransport")  # kazoo's thread would end with an error
    stored = StoredSession("f" * 16, "00", "127.0.0.1:1", 1, running_kernel())
    file = tmp_path / "session"
    file.write_bytes(msgspec.json.encode(stored))
    with pytest.raises(SessionNotClosed, match="is damaged"):
        await close_left_session(file)


@pytest.mark.parametrize("hosts", ["", "[::1", "127.0.0.1:port", "127.0.0.1:99999"])
async def test_a_file_with_an_invalid_address_does_not_stop_the_next_process(
    tmp_path: Path, hosts: str
) -> None:
    file = tmp_path / "session"
    stored = StoredSession("1", "00" * 16, hosts, 1, running_kernel())
    file.write_bytes(msgspec.json.encode(stored))
    with pytest.raises(SessionNotClosed, match="address"):
        await close_left_session(file)
    await stored_transport(settings_for("127.0.0.1:1", file))


async def test_without_zookeeper_the_session_stays_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_file, "_CLOSE_WITHIN_S", 0.2)
    file = tmp_path / "session"
    stored = StoredSession("1", "00" * 16, "127.0.0.1:1", 1, running_kernel())
    content = msgspec.json.encode(stored)
    file.write_bytes(content)
    with pytest.raises(SessionNotClosed, match="does not answer"):
        await close_left_session(file)
    assert file.read_bytes() == content


async def test_no_file_is_nothing_to_close(tmp_path: Path) -> None:
    assert await close_left_session(tmp_path / "none") is None
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing else runs on this loop


async def test_the_command_closes_it(zk_chroot: str, zk_session: ZkSession, tmp_path: Path) -> None:
    file = tmp_path / "session"

    async def command() -> int:
        process = await asyncio.create_subprocess_exec(
            *command_line("close-session", str(file)), stderr=asyncio.subprocess.DEVNULL
        )
        return await process.wait()

    with owner(zk_chroot, file) as process:
        assert await command() == 1  # it lives
        assert await zk_session.exists(NODE) is not None
        process.kill()
        process.wait()
        assert await command() == 0
    assert await zk_session.exists(NODE) is None


async def test_the_end_of_a_process_is_noticed_at_once(tmp_path: Path) -> None:
    child = Child("sleeper", ["sleep", "600"], tmp_path / "log")
    child.start()
    stop = asyncio.Event()
    waiting = asyncio.create_task(wait_for_end([child], stop, 600))
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.05)
        assert not waiting.done()
    finally:
        child.signal(signal.SIGKILL)
    async with asyncio.timeout(60):
        await waiting
    assert child.exit_code == -signal.SIGKILL
