from collections.abc import Callable
from threading import Event
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry

class KazooClient:
    chroot: str
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
    ) -> None: ...
    @property
    def connected(self) -> bool: ...
    @property
    def client_id(self) -> tuple[int, bytes] | None: ...
    def add_listener(self, listener: Callable[[str], bool | None]) -> None: ...
    def start_async(self) -> Event: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def _safe_close(self) -> None: ...
    def _call(self, request: Any, async_object: Any) -> bool | None: ...
