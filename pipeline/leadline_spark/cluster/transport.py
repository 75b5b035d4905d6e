"""HTTP by the standard library: one kept connection for each (process, address).

Executors need no HTTP library: `http.client` is as fast as any for bodies of megabytes, and the
cheapest per byte. Errors in the house format come as `Refusal`; what never got an answer comes as
`Unreachable`, which says whether the request may have been carried out.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

OCTETS = "application/octet-stream"
JSON = "application/json"
DEFAULT_TIMEOUT_S = 30.0
_IDLE_PER_ADDRESS = 4
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer below 400. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, decoded."""
        return json.loads(self.body)


class Refusal(Exception):
    """An answer of 400 and above, in the house format.

    `outcome` is `refused` (nothing was done) or `unknown`; `details` holds what the body says
    beyond that, such as `leader`, `log_start_offset` and `fields`.
    """

    def __init__(
        self,
        status: int,
        error_code: int,
        message: str,
        outcome: str,
        retriable: bool,
        details: Mapping[str, Any],
    ) -> None:
        super().__init__(status, error_code, message, outcome, retriable, details)
        self.status = status
        self.error_code = error_code
        self.message = message
        self.outcome = outcome
        self.retriable = retriable
        self.details = details

    def __str__(self) -> str:
        return f"{self.error_code}: {self.message}"


class Unreachable(Exception):
    """No answer came: `outcome` is `refused` where the request was certainly not carried out."""

    def __init__(self, url: str, reason: str, outcome: str) -> None:
        super().__init__(url, reason, outcome)
        self.url = url
        self.reason = reason
        self.outcome = outcome

    def __str__(self) -> str:
        return f"{self.url}: {self.reason}"


@dataclass(slots=True)
class _Pool:
    """Connections of this process that nobody uses at the moment, by scheme and address."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = field(default_factory=dict)

    def take(self, address: tuple[str, str]) -> http.client.HTTPConnection | None:
        """Return a kept connection that its other end has not closed."""
        while True:
            with self.lock:
                kept = self.idle.get(address)
                if not kept:
                    return None
                connection = kept.pop()
            if _is_quiet(connection):
                return connection
            connection.close()

    def give(self, address: tuple[str, str], connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request."""
        with self.lock:
            kept = self.idle.setdefault(address, [])
            if len(kept) < _IDLE_PER_ADDRESS:
                kept.append(connection)
                return
        connection.close()

    def forget(self) -> None:
        """Start anew in a forked process: its parent goes on using these connections."""
        self.lock = threading.Lock()
        self.idle = {}


_pool = _Pool()
os.register_at_fork(after_in_child=_pool.forget)


def request(
    method: str,
    url: str,
    path: str,
    params: Mapping[str, Any] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    token: str | None = None,
) -> Answer:
    """Ask `url` (scheme and address) for `path`; `body` is bytes, or anything JSON can hold.

    A request that found its kept connection closed is sent once more over a new one where that
    can do no harm (GET, HEAD, PUT, DELETE). Raises Refusal and Unreachable.
    """
    target = path + ("?" + urlencode(params) if params else "")
    content, sent = _content(body)
    sent = {**sent, **({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
    parts = urlsplit(url)
    address = (parts.scheme, parts.netloc)
    kept = _pool.take(address)
    if kept is not None:
        try:
            return _exchange(kept, address, method, target, content, sent, timeout_s)
        except Unreachable as gone:
            if method not in _REPEATABLE or gone.reason == "timed out":
                raise
    fresh = _connection(address, timeout_s)
    try:
        fresh.connect()
    except OSError as failure:
        fresh.close()
        raise Unreachable(url, str(failure), "refused") from failure
    return _exchange(fresh, address, method, target, content, sent, timeout_s)


def _content(body: Any) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), {"Content-Type": OCTETS}
    return json.dumps(body, separators=(",", ":")).encode(), {"Content-Type": JSON}


def _exchange(
    connection: http.client.HTTPConnection,
    address: tuple[str, str],
    method: str,
    target: str,
    content: bytes | None,
    headers: Mapping[str, str],
    timeout_s: float,
) -> Answer:
    """Send one request over an open connection and read its whole answer."""
    try:
        connection.sock.settimeout(timeout_s)
        connection.request(method, target, body=content, headers=dict(headers))
        response = connection.getresponse()
        payload = response.read()
    except (OSError, http.client.HTTPException) as failure:
        connection.close()
        reason = "timed out" if isinstance(failure, TimeoutError) else _named(failure)
        raise Unreachable("://".join(address), reason, "unknown") from failure
    except BaseException:
        # Interrupted half-way: what comes next on this connection is not ours to guess.
        connection.close()
        raise
    if response.will_close:
        connection.close()
    else:
        _pool.give(address, connection)
    names = {name.lower(): value for name, value in response.getheaders()}
    if response.status >= 400:
        raise _refusal(response.status, payload)
    return Answer(response.status, names, payload)


def _connection(address: tuple[str, str], timeout_s: float) -> http.client.HTTPConnection:
    scheme, netloc = address
    if scheme == "https":
        return http.client.HTTPSConnection(netloc, timeout=timeout_s)
    return http.client.HTTPConnection(netloc, timeout=timeout_s)


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Tell whether a kept connection is open: readable while idle means that it was closed."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _refusal(status: int, payload: bytes) -> Refusal:
    """Read the house error body; one in another format is unknown from 500 on, refused below."""
    try:
        body = json.loads(payload)
    except ValueError:
        body = None
    fields = dict(body) if isinstance(body, dict) else {}
    return Refusal(
        status,
        int(fields.pop("error_code", status)),
        str(fields.pop("message", f"HTTP status {status}")),
        str(fields.pop("outcome", "unknown" if status >= 500 else "refused")),
        bool(fields.pop("retriable", status >= 500)),
        fields,
    )


def _named(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}".rstrip(": ")
