"""A stand-in for a broker: real HTTP, with the answers that a test gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    """One request as it came in."""

    method: str
    path: str
    params: dict[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Said:
    """One answer; a `body` that is no bytes becomes JSON. `closes` ends the connection after it."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False


def refusal(status: int, code: int, **fields: Any) -> Said:
    retriable = fields.pop("retriable", False)
    body = {"error_code": code, "message": f"refused by {code}", "outcome": "refused"}
    return Said({**body, "retriable": retriable, **fields}, status)


def metadata(
    brokers: Mapping[int, str], topics: Mapping[str, tuple[str, list[Any]]], version: int = 1
) -> Said:
    """The answer of `GET /v1/metadata`: brokers' addresses, and topics' ids and partition rows."""
    return Said(
        {
            "cluster_id": "c",
            "version": version,
            "controller": None,
            "brokers": [
                {"id": broker, "url": url, "rack": None, "incarnation": 1}
                for broker, url in brokers.items()
            ],
            "topics": {
                name: {"topic_id": topic_id, "partitions": rows}
                for name, (topic_id, rows) in topics.items()
            },
        }
    )


class StandIn:
    """Answers what `answer` returns for a request, and remembers the requests."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.asked: list[Asked] = []
        self.connections = 0
        self.answer: Callable[[Asked], Said] = lambda _: refusal(404, 404)


@contextmanager
def stand_in() -> Iterator[StandIn]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            broker.connections += 1

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("Content-Length", 0))
            params = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, parts.path, params, headers, self.rfile.read(size))
            broker.asked.append(asked)
            said = broker.answer(asked)
            body = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
            self.send_response(said.status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = said.closes

        do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    broker = StandIn(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield broker
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
