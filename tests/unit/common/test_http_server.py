"""A service as its own process: it says where it listens, and stops cleanly and soon."""

import asyncio
import json
import os
import resource
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from leadline_cli.credentials import Credentials
from leadline_common.http import server
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.listeners import bind, bind_public
from leadline_common.identity import ServiceIdentity
from leadline_common.metrics import Metrics
from leadline_common.settings.fields import ServiceSettings
from leadline_common.tcp_ports import UnsafeListener
from tests.support.services.zookeeper import until
from tests.unit.common.http_app import build

ROOT = Path(__file__).resolve().parents[3]

SERVICE = """
import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from leadline_common.http.listeners import bind, bind_public
from leadline_common.http.public_tls import PublicTls
from leadline_common.http.server import run, serve
from leadline_common.logs import configure_logging
from tests.unit.common.http_app import Seen, build

async def slowly() -> None:
    print('{"event": "handing over"}', flush=True)
    await asyncio.Event().wait()

async def badly() -> None:
    raise ValueError("nobody takes it")

HAND_OVER = {"slowly": slowly, "badly": badly}

async def main() -> None:
    configure_logging("things", 1, stream=sys.stdout)
    seen = Seen()
    wake = seen.wake.set if sys.argv[1] == "wake" else None
    hand_over = HAND_OVER.get(sys.argv[1])
    listener = bind("127.0.0.1", 0)
    if sys.argv[1].startswith("/"):
        listener = replace(listener, tls=PublicTls.load(Path(sys.argv[1]), None, "127.0.0.1"))
    await serve(build(seen), listener, hand_over=hand_over, stopping=wake)
    print('{"event": "closed", "lifespan": ' + str(seen.closed).lower() + "}", flush=True)

run(main())
"""


@contextmanager
def service(mode: str = "wait") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the service; gives the process and its URL, as its log announces it."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, mode],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def stopped(process: subprocess.Popen[str], number: int) -> tuple[int, list[dict[str, Any]]]:
    """Send a signal; return the exit code and the log lines until the end."""
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    return process.returncode, [json.loads(line) for line in output.splitlines()]


def test_the_date_of_responses_goes_on() -> None:
    with service() as (_, url), httpx.Client(base_url=url) as client:
        first = client.get("/healthz").headers["date"]
        deadline = time.monotonic() + 30
        while client.get("/healthz").headers["date"] == first:
            assert time.monotonic() < deadline, "the date stands still"


async def test_an_idle_server_need_not_look_whether_it_is_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_DATE_EVERY_S", 3_600)
    bounds = ConnectionBounds(ServiceSettings(), Metrics(process=False))
    idle = server._Server(uvicorn.Config(build()), None, lambda: None, bounds)
    running = asyncio.create_task(idle.main_loop())
    await until(lambda: bool(idle.server_state.default_headers), "the date is made")
    assert not running.done()
    idle._stop()
    async with asyncio.timeout(30):
        await running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_ends_it_with_everything_closed_and_exit_code_0(number: signal.Signals) -> None:
    with service() as (process, url):
        assert httpx.get(f"{url}/healthz").json() == {"alive": True}
        code, lines = stopped(process, number)
    assert code == 0
    assert [line["event"] for line in lines] == ["stopped", "closed"]
    assert lines[-1]["lifespan"] is True


def test_a_client_of_tls_that_confirms_nothing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    credentials, broker = Credentials(tmp_path), ServiceIdentity("broker", 1)
    credentials.create_public([broker])
    tls = ssl.create_default_context(cafile=str(credentials.public_authority))
    with service(str(credentials.public_certificate_of(broker))) as (process, url):
        port = int(url.removeprefix("https://127.0.0.1:"))
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            tls.wrap_socket(plain, server_hostname="127.0.0.1") as idle,
        ):
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert idle.recv(8) == b"HTTP/1.1"
            code, lines = stopped(process, signal.SIGTERM)
    assert code == 0
    assert [line["event"] for line in lines] == ["stopped", "closed"], "no task was cancelled"


def test_it_serves_on_while_it_hands_over_and_a_second_signal_ends_that() -> None:
    with service("slowly") as (process, url):
        assert process.stdout is not None
        httpx.get(f"{url}/healthz").raise_for_status()
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline())["event"] == "handing over"
        assert httpx.get(f"{url}/healthz").json() == {"alive": True}
        code, lines = stopped(process, signal.SIGINT)
    assert code == 0
    assert [line["event"] for line in lines] == ["stopped", "closed"]


def test_it_stops_also_when_it_cannot_hand_over() -> None:
    with service("badly") as (process, url):
        httpx.get(f"{url}/healthz").raise_for_status()
        code, lines = stopped(process, signal.SIGTERM)
    assert code == 0
    assert [line["event"] for line in lines] == ["hand-over failed", "stopped", "closed"]


def test_a_process_without_descriptors_says_so_and_accepts_as_soon_as_it_has_some() -> None:
    """The server of uvloop closed it, or tried again without a pause, and logged neither."""
    with service() as (process, url):
        httpx.get(f"{url}/healthz").raise_for_status()
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (0, before[1]))
        port = int(url.removeprefix("http://127.0.0.1:"))
        with socket.create_connection(("127.0.0.1", port), timeout=30) as waiting:
            waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            line = next_line(process)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
            assert waiting.recv(12) == b"HTTP/1.1 200"
        assert (line["event"], line["reason"]) == ("connection refused", "Too many open files")


def next_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line of a process's log, or fail if there is none."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0], "it has logged nothing"
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


def long_poll(url: str) -> socket.socket:
    """Send a request that waits, and return its connection once it is waiting."""
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(b"GET /v1/wait HTTP/1.1\r\nHost: h\r\n\r\n")
    deadline = time.monotonic() + 30
    while "in_progress_requests 2" not in httpx.get(f"{url}/metrics").text:
        assert time.monotonic() < deadline, "the long poll never reached its route"
    return connection


def answer_on(connection: socket.socket) -> bytes:
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    connection.close()
    return received


def test_a_long_poll_is_woken_to_answer_what_it_has() -> None:
    with service("wake") as (process, url):
        connection = long_poll(url)
        code, _ = stopped(process, signal.SIGTERM)
        answer = answer_on(connection)
    assert code == 0
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"woken" in answer


def test_a_long_poll_that_does_not_wake_is_refused_and_does_not_hold_up_the_end() -> None:
    with service("wait") as (process, url):
        connection = long_poll(url)
        code, lines = stopped(process, signal.SIGTERM)
        answer = answer_on(connection)
    assert code == 0
    assert answer.startswith(b"HTTP/1.1 500")
    assert b'"outcome": "refused"' in answer
    assert lines[-1]["event"] == "closed"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org", ""])  # noqa: S104 - refused, never bound
def test_nothing_but_loopback_is_listened_on_without_authentication(host: str) -> None:
    with pytest.raises(UnsafeListener, match="not a loopback address"):
        bind_public(ServiceSettings(listen_host=host))


def test_nothing_but_loopback_is_listened_on_without_tls() -> None:
    settings = ServiceSettings(listen_host="10.1.2.3", authentication="required")
    with pytest.raises(UnsafeListener, match=r"listen\.tls\.certificate\.file"):
        bind_public(settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost"])
def test_the_port_is_known_as_soon_as_it_is_bound(host: str) -> None:
    listener = bind(host, 0)
    with listener.socket:
        assert listener.port > 0
        assert listener.url == f"http://{host}:{listener.port}"
        with pytest.raises(OSError, match="in use"):
            bind(host, listener.port)
