from typing import NamedTuple

class KazooState:
    SUSPENDED: str
    CONNECTED: str
    LOST: str

class EventType:
    NONE: str

class WatchedEvent(NamedTuple):
    type: str
    state: str
    path: str
