from collections.abc import Sequence
from socket import socket

class KazooTimeoutError(Exception): ...

class SequentialThreadingHandler:
    def select(
        self,
        readers: Sequence[socket],
        writers: Sequence[socket],
        errors: Sequence[socket],
        /,
        timeout: float | None = None,
    ) -> tuple[list[socket], list[socket], list[socket]]: ...
    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **options: object,
    ) -> socket: ...
