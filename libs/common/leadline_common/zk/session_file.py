"""The ZooKeeper session of a service in a file, so that nobody waits for a dead one to expire.

A process that is killed leaves its session, and with it its ephemeral nodes, until ZooKeeper
notices the silence. Whoever knows that the process has ended closes the session at once
(`close_left_session`): its supervisor, the service manager, or the next process that uses the file.

They know by the lock on the file, which the service holds until it ends, however it ends. A frozen
process still holds it, so its session is left alone. The lock is the kernel's, and proves nothing
about a process of another host, as where a volume was moved from a host that may still run. The
file therefore names the host's kernel, and a session of another one is left to expire.

The file has the session's password. Only its owner can read it.

Its disk can hang. So a service writes it in a thread of its own, waits for a moment, and goes on: a
session that is not in the file yet expires by itself, and one that is closed can stay there.
"""

from __future__ import annotations

import asyncio
import os
import platform
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from leadline_client.file_lock import FileLock, FileLockHeld
from leadline_common.identity import UnusableCredentials
from leadline_common.settings import ServiceSettings
from leadline_common.zk.connection_record import ConnectionRecord
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.ports import OpenTransport, SessionState
from leadline_common.zk.tls import ZkTls
from leadline_common.zk.transport import KazooTransport, SessionIdentity

logger = structlog.get_logger(__name__)

_VERSION: Final = 1
_LOCK_WITHIN_S: Final = 10.0
"""Longer than somebody else holds the lock in order to close the session."""
_LOCK_POLL_S: Final = 0.02
_ANSWERS_WITHIN_S: Final = 2.0
"""How long a service waits until the disk has its session, at most."""
_SHARE_OF_SESSION: Final = 0.25
"""The part of the session timeout that it may wait: meanwhile it sends nothing to ZooKeeper."""
_CLOSE_WITHIN_S: Final = 5.0
_TIMEOUT_MS: Final = 6_000
_OWNER_ONLY: Final = 0o600
_SESSION_BYTES: Final = 8
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class SessionNotClosed(Exception):
    """The session in a file is left to expire by itself; the message says why."""


class SessionFileInUse(SessionNotClosed):
    """The process whose session is in the file may be alive: it holds the lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"a process holds {path}: the service that uses it has not ended")


class StoredSession(msgspec.Struct, frozen=True):
    """A session, and how to reach its ZooKeeper; id and password are hexadecimal."""

    session: str
    password: str
    zookeeper: str
    pid: int
    kernel: str
    tls_ca_file: str = ""
    tls_certificate_file: str = ""
    version: int = _VERSION

    @property
    def identity(self) -> SessionIdentity:
        """What proves to ZooKeeper that a connection is of this session."""
        return int(self.session, 16), bytes.fromhex(self.password)

    def credentials(self) -> ZkCredentials | None:
        """Return what a connection needs; the session itself has logged in already.

        Raises:
            UnusableCredentials: a file of TLS cannot be used.

        """
        if not self.tls_ca_file:
            return None
        certificate = Path(self.tls_certificate_file) if self.tls_certificate_file else None
        return ZkCredentials("", (), ZkTls(Path(self.tls_ca_file), certificate))


_stored = msgspec.json.Decoder(StoredSession)


class _FileWriter:
    """Writes what a file has to contain, in order, in a thread that no process waits for.

    What another content replaces before its turn is not written. So nothing piles up while the
    disk hangs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._next: tuple[bytes, Future[None]] | None = None
        self._is_writing = False

    def put(self, content: bytes) -> Future[None]:
        """Return what is done when the content is written or replaced. Thread-safe."""
        done = Future[None]()
        with self._lock:
            replaced, self._next = self._next, (content, done)
            if not self._is_writing:
                self._is_writing = True
                threading.Thread(target=self._write_all, name="session-file", daemon=True).start()
        if replaced is not None:
            replaced[1].set_result(None)
        return done

    def _write_all(self) -> None:
        while (taken := self._take()) is not None:
            content, done = taken
            try:
                _write(self._path, content)
            except OSError as problem:
                done.set_exception(problem)
            else:
                done.set_result(None)

    def _take(self) -> tuple[bytes, Future[None]] | None:
        with self._lock:
            taken, self._next = self._next, None
            self._is_writing = taken is not None
            return taken


class SessionFile:
    """The file of a service that runs: it has the service's current session.

    Invariant: a session in the file is of the process that holds the lock, or of one that ended.
    """

    def __init__(self, path: Path, lock: FileLock, settings: ServiceSettings) -> None:
        """Use a file that is locked already; see `hold`."""
        self._writer = _FileWriter(path)
        self._lock = lock
        self._settings = settings

    @classmethod
    async def hold(cls, path: Path, settings: ServiceSettings) -> SessionFile:
        """Lock the file until this process ends, and close the session that the last one left.

        Raises:
            UnusableCredentials: another process holds it, or it cannot be used.

        """
        try:
            lock = await _locked(path)
        except SessionFileInUse as problem:
            raise UnusableCredentials(str(problem)) from None
        except OSError as problem:
            raise UnusableCredentials(
                f"zookeeper.session.file: cannot use {path} ({problem.strerror})"
            ) from None
        try:
            await _close_stored(path)
        except SessionNotClosed as problem:
            logger.warning("the session in a file expires by itself", reason=str(problem))
        return cls(path, lock, settings)

    def write(self, identity: SessionIdentity, within_s: float) -> None:
        """Store a session, before anything depends on it; blocks for a moment. Thread-safe.

        Raises:
            OSError: it is not stored; TimeoutError if the disk does not answer, and it will be.

        """
        number, password = identity
        settings = self._settings
        stored = StoredSession(
            f"{number:x}",
            password.hex(),
            settings.zookeeper_connect,
            os.getpid(),
            running_kernel(),
            _absolute(settings.zookeeper_tls_ca_file),
            _absolute(settings.zookeeper_tls_certificate_file),
        )
        self._writer.put(msgspec.json.encode(stored)).result(min(within_s, _ANSWERS_WITHIN_S))

    async def clear(self) -> None:
        """Forget the session, which is over; wait for a moment until that is written."""
        written = asyncio.wrap_future(self._writer.put(b""))
        done, _ = await asyncio.wait({written}, timeout=_ANSWERS_WITHIN_S)
        problem = written.exception() if done else TimeoutError()
        if problem is not None:
            logger.warning("the closed session is still stored", reason=_reason(problem))


async def stored_transport(
    settings: ServiceSettings, record: ConnectionRecord | None = None
) -> OpenTransport:
    """Return what opens the sessions of a service, one after another, in its file if it has one.

    Raises:
        UnusableCredentials: the file cannot be used; the message says why.

    """
    path, record = settings.session_file, record or ConnectionRecord()
    if path is None:
        return partial(KazooTransport, record=record)
    return partial(_StoredTransport, await SessionFile.hold(path, settings), record=record)


class _StoredTransport(KazooTransport):
    """A transport whose session is in a file from its first connection until it is closed."""

    def __init__(
        self,
        file: SessionFile,
        hosts: str,
        session_timeout_ms: int,
        on_state: Callable[[SessionState], None],
        credentials: ZkCredentials | None,
        record: ConnectionRecord | None,
    ) -> None:
        self._file = file
        self._stored: SessionIdentity | None = None
        super().__init__(hosts, session_timeout_ms, on_state, credentials, record=record)

    def _on_connected(self) -> None:
        identity = self.identity
        if identity is None or identity == self._stored:
            return
        self._stored = identity
        try:
            self._file.write(identity, self.granted_timeout_ms / 1000 * _SHARE_OF_SESSION)
        except OSError as problem:  # The session then expires by itself, as without a file.
            logger.warning("the session is not stored", reason=_reason(problem))

    async def finish(self) -> None:
        """Close the session, and remove it from the file."""
        await super().finish()
        if self._stored is not None:
            await self._file.clear()


async def close_left_session(path: Path) -> StoredSession | None:
    """Close the session that an ended process left in its file; None if it left none.

    Raises:
        SessionFileInUse: the process has not ended.
        SessionNotClosed: the file is damaged, the process may live on another host, or ZooKeeper
            does not answer.
        OSError: the file cannot be used.

    """
    try:
        lock = _lock_existing(path)
    except FileNotFoundError:
        return None
    with lock:
        return await _close_stored(path)


def _lock_existing(path: Path) -> FileLock:
    path.stat()  # Locking would create it.
    try:
        return FileLock.acquire(path, blocking=False)
    except FileLockHeld:
        raise SessionFileInUse(path) from None


async def _locked(path: Path) -> FileLock:
    """Lock the file, which somebody may hold for a moment to close the session in it."""
    _make_private(path)
    give_up = asyncio.get_running_loop().time() + _LOCK_WITHIN_S
    while True:
        try:
            return FileLock.acquire(path, blocking=False)
        except FileLockHeld:
            if asyncio.get_running_loop().time() > give_up:
                raise SessionFileInUse(path) from None
        await asyncio.sleep(_LOCK_POLL_S)


async def _close_stored(path: Path) -> StoredSession | None:
    """Close the session in a file that this process has locked, and empty the file.

    Raises:
        SessionNotClosed: see `close_left_session`; the session stays in the file.

    """
    stored = _read(path)
    if stored is None:
        return None
    try:
        await _close(stored)
    except UnusableCredentials as problem:
        raise SessionNotClosed(str(problem)) from None
    _write(path, b"")
    logger.info("the session of an ended process is closed", session=stored.session)
    return stored


async def _close(stored: StoredSession) -> None:
    """Take over a session and close it, unless it is over.

    Raises:
        UnusableCredentials: a file of TLS cannot be used.
        SessionNotClosed: the process may be elsewhere, or ZooKeeper does not answer.

    """
    if stored.kernel != running_kernel():
        raise SessionNotClosed("it is of another host, or of the time before a restart of this one")
    decided: asyncio.Future[SessionState] = asyncio.get_running_loop().create_future()

    def on_state(state: SessionState) -> None:
        if not decided.done() and state is not SessionState.SUSPENDED:
            decided.set_result(state)

    try:
        transport = KazooTransport(
            stored.zookeeper, _TIMEOUT_MS, on_state, stored.credentials(), resumed=stored.identity
        )
    except ValueError as problem:
        raise SessionNotClosed(f"the address of its ZooKeeper is invalid: {problem}") from None
    transport.start()
    try:
        async with asyncio.timeout(_CLOSE_WITHIN_S):
            await decided
    except TimeoutError:
        raise SessionNotClosed("ZooKeeper does not answer") from None
    finally:
        await transport.finish()


@cache
def running_kernel() -> str:
    """Return the id of the running kernel, which containers share; else the host's name."""
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return platform.node()


def _read(path: Path) -> StoredSession | None:
    """Return the session in a file; None if there is none.

    Raises:
        SessionNotClosed: the file is damaged.

    """
    content = path.read_bytes()
    if not content:
        return None
    try:
        stored = _stored.decode(content)
        number, _ = stored.identity  # raises ValueError if it is not hexadecimal
        number.to_bytes(_SESSION_BYTES, signed=True)
    except (msgspec.MsgspecError, ValueError, OverflowError) as problem:
        raise SessionNotClosed(f"{path} is damaged: {problem}") from None
    return stored


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
    try:
        os.fchmod(descriptor, _OWNER_ONLY)
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    # In place: the lock is on this very file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
    finally:
        os.close(descriptor)


def _reason(problem: BaseException) -> str:
    if isinstance(problem, TimeoutError):
        return "its disk does not answer"
    return str(problem)


def _absolute(name: str) -> str:
    return str(Path(name).absolute()) if name else ""
