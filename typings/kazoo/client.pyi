from collections import deque
from collections.abc import Callable
from threading import Event
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry
from kazoo.security import ACL

class AsyncResult:
    def wait(self, timeout: float | None = ...) -> bool: ...
    def successful(self) -> bool: ...

class KazooClient:
    chroot: str
    hosts: list[tuple[str, int]]
    last_zxid: int
    _session_id: int | None
    _pending: deque[tuple[object, ...]]
    _queue: deque[tuple[object, ...]]
    _session_passwd: bytes
    randomize_hosts: bool
    _session_timeout: int
    _connection: ConnectionHandler
    _conn_retry: KazooRetry
    _stopped: Event
    def __init__(
        self,
        hosts: str,
        timeout: float = ...,
        client_id: tuple[int, bytes] | None = ...,
        *,
        handler: SequentialThreadingHandler | None = ...,
        connection_retry: KazooRetry | None = ...,
        auth_data: set[tuple[str, str]] | None = ...,
    ) -> None: ...
    @property
    def connected(self) -> bool: ...
    @property
    def client_id(self) -> tuple[int, bytes] | None: ...
    def add_listener(self, listener: Callable[[str], bool | None]) -> None: ...
    def start(self) -> None: ...
    def exists_async(self, path: str) -> AsyncResult: ...
    def start_async(self) -> Event: ...
    def set_hosts(self, hosts: str) -> None: ...
    def set_acls(self, path: str, acls: list[ACL]) -> object: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def _safe_close(self) -> None: ...
    def _call(self, request: Any, async_object: Any) -> bool | None: ...
