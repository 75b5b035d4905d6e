from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.protocol.states import WatchedEvent

class Connect(NamedTuple):
    protocol_version: int
    last_zxid_seen: int
    time_out: int
    session_id: int
    passwd: bytes
    read_only: bool

class _Read:
    path: str
    watcher: Callable[[WatchedEvent], None]
    def __init__(self, path: str, watcher: Callable[[WatchedEvent], None]) -> None: ...
    @classmethod
    def deserialize(cls, bytes: bytes, offset: int) -> Any: ...

class Exists(_Read): ...
class GetData(_Read): ...
class GetChildren(_Read): ...
