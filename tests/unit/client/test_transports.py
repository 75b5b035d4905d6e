"""Both transports carry a request and its response, and tell apart how they fail (rule R15)."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import pytest

from leadline_client import http_connection, http_transport, stdlib_transport
from leadline_client.errors import ConnectionLost, Unreachable
from leadline_client.http_connection import RawRequest
from leadline_client.http_connections import Address, HttpConnections, NotConnected
from leadline_client.http_transport import AsyncHttpTransport
from leadline_client.security import CA_FILE_VARIABLE, Authenticator, Security
from leadline_client.stdlib_transport import ConnectionPool, StdlibTransport
from leadline_client.transport import Request, Response
from tests.support.services.cluster import wait_until
from tests.support.services.zookeeper import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Leadline-Name: Value\r\n\r\nok"
LAST = OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
TOO_LARGE = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}"
GZIPPED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"

Script = Callable[[bytes], bytes | None]
"""From the head and body of a request to the response; None closes the connection."""


class Server:
    """Answers as `script` says, one thread for each connection."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.script: Script = lambda _: OK
        self.requests: list[bytes] = []
        self.connections = 0
        self.reads_bodies = True
        self.closes_after_each = False
        self.delay_s = 0.0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    @property
    def address(self) -> str:
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://localhost:{self._listener.getsockname()[1]}"

    def hang_up(self) -> None:
        """Close every open connection."""
        for connection in tuple(self._open):
            with suppress(OSError):  # The other end was faster.
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.hang_up()

    def _accept(self) -> None:
        with ThreadPoolExecutor(32) as pool:
            while True:
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    return self.hang_up()
                self.connections += 1
                pool.submit(self._serve, connection)

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(plain, server_side=True)
            self._open.add(connection)
            with connection, connection.makefile("rb") as stream:
                while request := self._read(stream):
                    self.requests.append(request)
                    time.sleep(self.delay_s)
                    response = self.script(request)
                    if response is None:
                        return
                    connection.sendall(response)
                    if self.closes_after_each:
                        return
        except OSError:
            return
        finally:
            self._open.discard(connection)
            plain.close()

    def _read(self, stream: BinaryIO) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                return b""
            head += line
        sizes = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ]
        return head + (stream.read(sum(sizes)) if self.reads_bodies else b"")


class BlockingTransport(Protocol):
    """A transport as these tests use it."""

    def send(self, request: Request) -> Response: ...

    def close(self) -> None: ...


class BlockingHttp:
    """The asynchronous transport, run to the end of each request."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._transport = self._runner.run(self._made())

    def send(self, request: Request) -> Response:
        return self._runner.run(self._transport.send(request))

    def close(self) -> None:
        self._runner.run(self._transport.aclose())
        self._runner.close()

    @staticmethod
    async def _made() -> AsyncHttpTransport:
        return AsyncHttpTransport()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that answers every request with 200."""
    running = Server()
    yield running
    running.close()


@pytest.fixture(params=[StdlibTransport, BlockingHttp])
def transport(request: pytest.FixtureRequest) -> Iterator[BlockingTransport]:
    """Each of the two transports."""
    made: BlockingTransport = request.param()
    yield made
    made.close()


@pytest.fixture
def stdlib() -> Iterator[StdlibTransport]:
    """The transport that needs only the standard library."""
    made = StdlibTransport()
    yield made
    made.close()


def stating(length: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{}" % length


def answering(response: bytes) -> Script:
    return lambda _: response


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_request_and_its_response_arrive_whole(
    transport: BlockingTransport, server: Server
) -> None:
    server.script = lambda _: OK.replace(b"200 OK", b"421 Misdirected")
    params = {"topics": "a b,ü", "n": "1"}
    headers = {"content-type": "application/json", "accept": "x/y"}
    request = Request("POST", f"{server.address}/v1/a%2Fb c", params, headers, b"{}")

    response = transport.send(request)

    assert (response.status, response.body) == (421, b"ok")
    assert response.headers["x-leadline-name"] == "Value"
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    assert body == b"{}"
    path, _, query = line.removesuffix(" HTTP/1.1").partition("?")
    assert path == "POST /v1/a%2Fb%20c"
    assert query in {"topics=a%20b%2C%C3%BC&n=1", "topics=a+b%2C%C3%BC&n=1"}
    sent = {one.partition(":")[0].lower(): one.partition(": ")[2] for one in lines}
    assert sent.items() >= {**headers, "content-length": "2"}.items()


def test_a_connection_is_used_again(transport: BlockingTransport, server: Server) -> None:
    for _ in range(5):
        transport.send(Request("GET", server.address))
    assert server.connections == 1


def test_a_connection_that_the_server_ends_is_not_used_again(
    transport: BlockingTransport, server: Server
) -> None:
    server.script = lambda _: LAST
    for method in ("GET", "POST", "DELETE"):
        assert transport.send(Request(method, server.address)).body == b"ok"
    assert server.connections == 3


@pytest.mark.parametrize(
    "address", ["http://[::1", "ftp://nonsense", "http://", "http://127.0.0.1:port", "nonsense"]
)
def test_an_address_that_is_none_is_unreachable(transport: BlockingTransport, address: str) -> None:
    with pytest.raises(Unreachable, match="nothing was sent"):
        transport.send(Request("POST", address))


def test_without_a_connection_nothing_was_sent(transport: BlockingTransport) -> None:
    address = unused_address()
    with pytest.raises(Unreachable) as refusal:
        transport.send(Request("POST", address))
    assert f"POST {address}" in str(refusal.value)
    assert refusal.value.outcome == "refused"


@pytest.mark.parametrize(
    "response", [None, b"", HALF, b"nonsense\r\n\r\n", stating(10**15), stating(10**22)]
)
def test_without_a_complete_response_the_outcome_is_unknown(
    transport: BlockingTransport, server: Server, response: bytes | None
) -> None:
    server.script = lambda _: response
    server.closes_after_each = True
    with pytest.raises(ConnectionLost) as loss:
        transport.send(Request("POST", server.address, body=b"x"))
    assert loss.value.outcome == "unknown"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "endless",
    [
        CHUNKED + b"64\r\n%b\r\n" % bytes(100) * 1_000,
        CHUNKED + b"%x\r\n" % 10**15 + bytes(100_000),
        CHUNKED + b"-1\r\n" + bytes(200_000),
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(100_000),
    ],
    ids=["chunks", "a large chunk", "a negative chunk", "until the end of the connection"],
)
def test_a_body_of_unknown_length_is_not_read_without_limit(
    transport: BlockingTransport,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    endless: bytes,
) -> None:
    """The server holds the connection open: whoever reads to the end waits for it in vain."""
    for module in (http_connection, stdlib_transport):
        monkeypatch.setattr(module, "LARGEST_BODY", 1_000)
    server.script = lambda _: endless
    with pytest.raises(ConnectionLost) as refused:
        transport.send(Request("POST", server.address, body=b"x", timeout_s=5.0))
    assert not isinstance(refused.value.__cause__, TimeoutError)


def test_chunks_arrive_as_one_body(transport: BlockingTransport, server: Server) -> None:
    parts = [b"x" * size for size in (1, 70_000, 3)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    server.script = lambda _: CHUNKED + chunks + b"0\r\n\r\n"
    for _ in range(2):
        assert transport.send(Request("GET", server.address)).body == b"".join(parts)
    assert server.connections == 1


def test_a_response_that_is_late_is_an_unknown_outcome(
    transport: BlockingTransport, server: Server
) -> None:
    server.delay_s = 0.5
    with pytest.raises(ConnectionLost):
        transport.send(Request("GET", server.address, timeout_s=0.1))
    server.delay_s = 0.0
    assert transport.send(Request("GET", server.address)).body == b"ok"
    assert server.connections == 2


def test_a_refusal_of_a_body_that_was_not_read_arrives(
    stdlib: StdlibTransport, server: Server
) -> None:
    server.reads_bodies = False
    server.closes_after_each = True
    server.script = lambda _: TOO_LARGE

    response = stdlib.send(Request("POST", server.address, body=bytes(32 << 20)))

    assert response.status == 413
    server.reads_bodies = True
    server.script = lambda _: OK
    assert stdlib.send(Request("POST", server.address)).status == 200


def test_only_a_read_is_sent_again_when_its_kept_connection_breaks(
    transport: BlockingTransport, server: Server
) -> None:
    for method, attempts in (("GET", 2), ("HEAD", 2), ("POST", 1), ("PUT", 1), ("DELETE", 1)):
        server.script = lambda _: OK.replace(b"2\r", b"0\r").removesuffix(b"ok")
        transport.send(Request("POST", server.address))
        server.script = lambda _: None
        server.requests.clear()
        with pytest.raises(ConnectionLost):
            transport.send(Request(method, server.address))
        assert len(server.requests) == attempts, method


def test_a_large_body_arrives_whole_and_states_its_length(
    transport: BlockingTransport, server: Server
) -> None:
    body = bytes(range(256)) * 5000
    assert transport.send(Request("POST", server.address, body=body)).body == b"ok"
    head, _, received = server.requests[0].partition(b"\r\n\r\n")
    assert received == body
    assert f"content-length: {len(body)}" in head.decode().lower()
    assert b"chunked" not in head.lower()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_kept_connection_that_was_closed_is_not_used(
    transport: BlockingTransport, server: Server, method: str
) -> None:
    transport.send(Request("POST", server.address))
    server.hang_up()
    time.sleep(0.05)
    assert transport.send(Request(method, server.address)).body == b"ok"
    assert server.connections == 2


def test_a_connection_is_not_kept_longer_than_a_server_keeps_it(server: Server) -> None:
    now_s = 0.0
    pool = ConnectionPool(clock=lambda: now_s)
    transport = StdlibTransport(pool=pool)
    for now_s, connections in ((0.0, 1), (1.9, 1), (3.9, 2)):  # noqa: B007 - the clock reads it
        transport.send(Request("GET", server.address))
        assert server.connections == connections
    transport.close()


def test_transports_may_share_connections_but_not_their_tokens(server: Server) -> None:
    pool = ConnectionPool()
    for token in ("first", "second", None):
        transport = StdlibTransport(Authenticator(Security(token=token)), pool=pool)
        transport.send(Request("GET", server.address))
    assert server.connections == 1
    heads = [request.lower() for request in server.requests]
    assert b"authorization: bearer first\r\n" in heads[0]
    assert b"authorization: bearer second\r\n" in heads[1]
    assert b"authorization" not in heads[2]
    pool.close()


@pytest.mark.parametrize("token", ["", "se cret", "secret\r\nx: y", "sécret"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ValueError, match="token") as refusal:
        Security(token=token)
    assert not token or token not in str(refusal.value)


@pytest.fixture
def asynchronous() -> Iterator[BlockingHttp]:
    """The asynchronous transport."""
    made = BlockingHttp()
    yield made
    made.close()


def test_a_compressed_response_is_returned_plain(
    asynchronous: BlockingHttp, server: Server
) -> None:
    plain = b"metadata " * 1_000
    packed = gzip.compress(plain)
    server.script = lambda _: GZIPPED % (len(packed), packed)

    assert asynchronous.send(Request("GET", server.address)).body == plain
    assert b"accept-encoding: gzip" in server.requests[0]

    server.script = lambda _: GZIPPED % (len(packed) - 9, packed[:-9])
    with pytest.raises(ConnectionLost):
        asynchronous.send(Request("GET", server.address))


@pytest.mark.parametrize("behind", [b"", gzip.compress(b"more")], ids=["alone", "another file"])
def test_a_compressed_response_is_not_unpacked_without_limit(
    asynchronous: BlockingHttp, server: Server, monkeypatch: pytest.MonkeyPatch, behind: bytes
) -> None:
    monkeypatch.setattr(http_transport, "LARGEST_BODY", 1_000)
    for size in (1_000, 1_001):
        packed = gzip.compress(bytes(size)) + behind
        server.script = answering(GZIPPED % (len(packed), packed))
        if size == 1_000 and not behind:
            assert asynchronous.send(Request("GET", server.address)).body == bytes(size)
            continue
        with pytest.raises(ConnectionLost):
            asynchronous.send(Request("GET", server.address))


def test_a_response_without_a_body_may_name_an_encoding(
    asynchronous: BlockingHttp, server: Server
) -> None:
    server.script = answering(
        b"HTTP/1.1 304 Not Modified\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n"
    )

    answer = asynchronous.send(Request("GET", server.address))

    assert (answer.status, answer.body) == (304, b"")


def test_what_cannot_be_sent_as_it_is_said_is_not_sent(
    asynchronous: BlockingHttp, server: Server
) -> None:
    for headers in ({"x": "a\r\ny: b"}, {"x\n": "a"}):
        with pytest.raises(Unreachable, match="line break"):
            asynchronous.send(Request("POST", server.address, headers=headers))
    assert not server.requests


def test_threads_share_a_transport(stdlib: StdlibTransport, server: Server) -> None:
    server.script = lambda request: OK.replace(b"ok", request.split(b" ")[1][1:3])

    def ask(number: int) -> bytes:
        return stdlib.send(Request("GET", f"{server.address}/{number}")).body

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(10, 90)))
    assert answers == [b"%d" % number for number in range(10, 90)]


def test_a_process_that_ends_closes_the_connections_it_kept(server: Server) -> None:
    """A module may keep a pool as long as the process runs, and nobody else could close it."""
    program = (
        "from leadline_client.stdlib_transport import ConnectionPool, StdlibTransport\n"
        "from leadline_client.transport import Request\n"
        "pool = ConnectionPool()\n"
        f"StdlibTransport(pool=pool).send(Request('GET', {server.address!r}))\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_forked_process_leaves_its_parents_connections_alone(
    stdlib: StdlibTransport, server: Server
) -> None:
    """Spark forks its workers: two that read from one socket would get each other's responses."""
    stdlib.send(Request("GET", server.address))
    assert server.connections == 1

    child = os.fork()
    if not child:
        try:
            stdlib.send(Request("GET", server.address))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert server.connections == 2
    stdlib.send(Request("GET", server.address))
    assert server.connections == 2


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's context; the transports trust its certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, file = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    made = [*command, "-keyout", str(key), "-out", str(file)]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    monkeypatch.setenv(CA_FILE_VARIABLE, str(file))
    return context


@pytest.mark.parametrize("kind", [StdlibTransport, BlockingHttp])
def test_tls_is_checked_and_its_connections_are_used_again(
    certificate: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[], BlockingTransport],
) -> None:
    server = Server(certificate)
    trusting = kind()
    for _ in range(3):
        assert trusting.send(Request("POST", server.address)).body == b"ok"
    assert server.connections == 1
    trusting.close()

    monkeypatch.delenv(CA_FILE_VARIABLE)
    distrusting = kind()
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        distrusting.send(Request("POST", server.address))
    distrusting.close()
    server.close()


async def test_a_request_that_is_given_up_while_it_connects_leaves_no_connection(
    certificate: ssl.SSLContext,
) -> None:
    """After any number of the event loop's passes; the next connection has the same descriptor."""
    loop = asyncio.get_running_loop()
    open_connections = set[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.add(writer)
        with suppress(ConnectionError):
            await reader.read()
        open_connections.discard(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificate)
    place = server.sockets[0].getsockname()
    trusting = ssl.create_default_context(cafile=os.environ[CA_FILE_VARIABLE])
    address = Address("127.0.0.1", place[1], trusting, "localhost")
    connections = HttpConnections(1.0)
    for passes in range(40):
        asking = asyncio.ensure_future(
            connections.exchange(
                address, RawRequest("GET", b"GET", b""), connect_timeout_s=10, timeout_s=10
            )
        )
        for _ in range(passes):
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        with socket.socket() as other:
            other.setblocking(False)
            await loop.sock_connect(other, place)
    await until(lambda: not open_connections, "every connection has ended")
    connections.close()
    server.close()
    await server.wait_closed()


def test_an_answer_before_the_end_of_a_large_request_ends_its_connection_with_tls_too(
    certificate: ssl.SSLContext,
) -> None:
    with closing(Server(certificate)) as server, closing(BlockingHttp()) as transport:
        server.reads_bodies = False
        server.script = lambda _: TOO_LARGE
        refused = transport.send(Request("POST", server.address, body=bytes(32 << 20)))
        assert refused.status == 413

        server.reads_bodies = True
        server.script = lambda _: OK
        assert transport.send(Request("POST", server.address, timeout_s=5.0)).status == 200
        assert server.connections == 2


async def test_a_connection_that_the_server_ends_is_forgotten() -> None:
    """Although nobody asks there again.

    A service that is started again has another port; its last connections kept 256 KB each.
    """
    writers = list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connections = HttpConnections(60.0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    request = RawRequest.of("GET", "/", "127.0.0.1", {}, b"")
    for _ in range(2):
        asked = (
            connections.exchange(address, request, connect_timeout_s=10, timeout_s=10)
            for _ in range(3)
        )
        await asyncio.gather(*asked)
        assert len(connections) == 3

        for writer in writers:
            writer.close()
            await writer.wait_closed()

        await until(lambda: len(connections) == 0, "all are forgotten")
    connections.close()
    server.close()
    await server.wait_closed()


async def test_a_connection_that_is_being_made_when_all_are_closed_is_not_used() -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connections = HttpConnections(60.0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    request = RawRequest.of("POST", "/", "127.0.0.1", {}, b"")
    asking = asyncio.create_task(
        connections.exchange(address, request, connect_timeout_s=10, timeout_s=10)
    )
    await asyncio.sleep(0)
    connections.close()
    with pytest.raises(NotConnected, match="closed"):
        await asking
    assert len(connections) == 0
    await until(lambda: requests == [b""], "the connection ends without a request")
    server.close()
    await server.wait_closed()


async def test_a_connection_that_was_idle_for_too_long_is_closed_with_those_elsewhere() -> None:
    served = set[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        served.discard(writer)

    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(2)]
    first, second = (Address("127.0.0.1", one.sockets[0].getsockname()[1]) for one in servers)
    connections = HttpConnections(0.05)
    request = RawRequest.of("GET", "/", "127.0.0.1", {}, b"")
    await connections.exchange(first, request, connect_timeout_s=10, timeout_s=10)

    async def only_the_second() -> bool:
        await connections.exchange(second, request, connect_timeout_s=10, timeout_s=10)
        return len(connections) == 1

    await wait_until(only_the_second, "the first one is closed")
    connections.close()
    await until(lambda: not served, "all are closed")
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_of_authorities_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv(CA_FILE_VARIABLE, str(file))
    named = f"LEADLINE_CA_FILE: {file} cannot be used: "
    with pytest.raises(Unreachable, match=named):
        StdlibTransport().send(Request("GET", "https://127.0.0.1:1/"))
    with pytest.raises(Unreachable, match=named):
        AsyncHttpTransport()
