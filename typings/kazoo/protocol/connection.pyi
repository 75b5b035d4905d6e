from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

class ConnectionHandler:
    def __init__(self, client: KazooClient, retry_sleeper: KazooRetry) -> None: ...
    def _invoke(
        self, timeout: float, request: object, xid: int | None = None
    ) -> tuple[object, int | None] | int | None: ...
