"""A server that exports the audit of the recorded fault run, and can be told to have lost some."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from leadline_client.errors import ClusterChanged
from leadline_client.transport import CLUSTER_ID_HEADER

RECORDED = Path(__file__).parents[2] / "spark" / "data" / "audit-fault-run.ndjson"


def recorded() -> list[dict[str, Any]]:
    """Return the entries of the run, as they were exported."""
    return [json.loads(line) for line in RECORDED.read_bytes().splitlines()]


class ExportedAudit(ThreadingHTTPServer):
    """Answers `/v1/export/audit` and its head, or refuses `refusals` times first.

    Before that it hangs up on `silences` requests without an answer. With a `cluster_id` it names
    its cluster in answers, and refuses requests to another one.
    """

    daemon_threads = True

    def __init__(self, entries: Sequence[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.entries = list(entries)
        self.refusals = 0
        self.silences = 0
        self.cluster_id: str | None = None
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str, params: dict[str, int]) -> bytes:
        """Return the body for a question."""
        if path.endswith("/head"):
            first, last = self.entries[0], self.entries[-1]
            head = {"oldest": first["id"], "head": last["id"], "head_time": last["time"]}
            return json.dumps(head).encode()
        found = [e for e in self.entries if params["after"] < e["id"] < params["before"]]
        return b"".join(json.dumps(e).encode() + b"\n" for e in found[: params["limit"]])


class _Handler(BaseHTTPRequestHandler):
    server: ExportedAudit
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the base class calls it so
        parts = urlsplit(self.path)
        self.server.asked.append(self.path)
        if self.server.silences:
            self.server.silences -= 1
            self.close_connection = True
            return
        status, body = 200, b""
        meant, here = self.headers.get(CLUSTER_ID_HEADER), self.server.cluster_id
        if here is not None and meant not in (None, here):
            refusal = ClusterChanged.between(meant, here)
            status, body = refusal.status, json.dumps(refusal.body()).encode()
        elif self.server.refusals:
            self.server.refusals -= 1
            status, body = 503, b'{"error_code":50350,"message":"taking over","retriable":true}'
        else:
            params = {name: int(value) for name, value in parse_qsl(parts.query)}
            body = self.server.answer(parts.path, params)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if here is not None:
            self.send_header(CLUSTER_ID_HEADER, here)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def exported_audit() -> Iterator[ExportedAudit]:
    """Run the server for as long as the block lasts."""
    server = ExportedAudit(recorded())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
