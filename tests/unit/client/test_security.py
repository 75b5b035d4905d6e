"""Clients check servers' certificates, show their own, and give a token to nobody else."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request as Handshake
from websockets.http11 import Response as Answer

from leadline_cli.authorities import PUBLIC
from leadline_cli.certificates import Authority
from leadline_client import AsyncClient, AsyncProducer, Client, Consumer, Producer, Security
from leadline_client.errors import (
    ConnectionLost,
    Forbidden,
    LeadlineError,
    QuotaExceeded,
    ServerNotTrusted,
    TokenNotSent,
    Unauthorized,
    Unreachable,
    UnusableClientCredentials,
)
from leadline_client.http_transport import AsyncHttpTransport
from leadline_client.security import Authenticator, _tls_context
from leadline_client.stdlib_transport import ConnectionPool, StdlibTransport
from leadline_client.threaded_transport import ThreadedTransport
from leadline_client.transport import AsyncTransport, Request, Response
from leadline_client.websocket import open_channel
from leadline_common.identity import ServiceIdentity
from tests.unit.client.test_transports import OK, Server

SECRET = "admin.3f0c-secret"  # noqa: S105 - of these tests alone
SUCCESSOR = "admin.77aa-secret"
BROKER = ServiceIdentity("broker", 1)
ELSEWHERE = "broker.example:9091"
"""A name that is not of this machine; nothing listens there, and nothing may ask for it."""

Send: TypeAlias = Callable[[Security, Request], Response]


def by_stdlib(security: Security, request: Request) -> Response:
    transport = StdlibTransport(Authenticator(security))
    try:
        return transport.send(request)
    finally:
        transport.close()


def by(transport: Callable[[Authenticator], AsyncTransport]) -> Send:
    async def send(security: Security, request: Request) -> Response:
        made = transport(Authenticator(security))
        try:
            return await made.send(request)
        finally:
            await made.aclose()

    return lambda security, request: asyncio.run(send(security, request))


@pytest.fixture(
    params=[
        by_stdlib,
        by(AsyncHttpTransport),
        by(lambda authenticator: ThreadedTransport(StdlibTransport(authenticator), owned=True)),
    ],
    ids=["stdlib", "http", "threaded"],
)
def send(request: pytest.FixtureRequest) -> Send:
    """One request by each transport."""
    chosen: Send = request.param
    return chosen


class Files:
    """An authority, and certificates that it has signed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = Authority.new(name_text=PUBLIC)
        self.ca = self.write("ca.pem", self.authority.certificate_pem)

    def write(self, name: str, content: bytes) -> str:
        path = self._directory / name
        path.write_bytes(content)
        return str(path)

    def certificate(self, *hosts: str) -> str:
        """Return the file with a certificate for these hosts, and its key."""
        return self.write("server.pem", self.authority.issue_public(BROKER, hosts))

    def of_client(self) -> str:
        """Return the file with a client's certificate, and its key."""
        return self.write("client.pem", self.authority.issue(BROKER))

    def context(self, *hosts: str) -> ssl.SSLContext:
        """Return the context of a server with such a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate(*hosts))
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """An authority of this test."""
    return Files(tmp_path)


@pytest.fixture
def plain() -> Iterator[Server]:
    """A server without TLS."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def serving() -> Iterator[Callable[[ssl.SSLContext], Server]]:
    """Start servers with TLS, which end with the test."""
    servers: list[Server] = []

    def start(context: ssl.SSLContext) -> Server:
        servers.append(Server(context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Serving: TypeAlias = Callable[[ssl.SSLContext], Server]


def accepting(*tokens: str) -> Callable[[bytes], bytes]:
    """Return a server's script that refuses every other token."""
    known = [f"authorization: bearer {token}\r\n".encode() for token in tokens]
    return lambda request: (
        OK
        if any(line in request.lower() for line in known)
        else OK.replace(b"200 OK", b"401 Unauthorized")
    )


def test_a_server_of_the_given_authority_is_trusted(
    send: Send, files: Files, serving: Serving
) -> None:
    server = serving(files.context("localhost"))
    assert send(Security(ca_file=files.ca), Request("GET", server.address)).body == b"ok"


def test_a_server_of_another_authority_gets_no_request(
    send: Send, files: Files, serving: Serving
) -> None:
    server = serving(files.context("localhost"))
    other = files.write("other.pem", Authority.new(name_text=PUBLIC).certificate_pem)
    with pytest.raises(ServerNotTrusted, match="nothing was sent") as refusal:
        send(Security(ca_file=other, token=SECRET), Request("POST", server.address))
    assert (refusal.value.retriable, refusal.value.outcome) == (False, "refused")
    assert server.requests == []


def test_a_server_whose_certificate_names_another_host_gets_no_request(
    send: Send, files: Files, serving: Serving
) -> None:
    server = serving(files.context("elsewhere.example"))
    with pytest.raises(ServerNotTrusted, match="localhost"):
        send(Security(ca_file=files.ca, token=SECRET), Request("POST", server.address))
    assert server.requests == []


def test_only_what_tls_says_makes_a_server_untrusted(send: Send) -> None:
    """A topic may have any name; a server that is down must be asked again."""
    with pytest.raises(Unreachable) as refusal:
        send(Security(), Request("GET", "http://localhost:1/v1/topics/CERTIFICATE_VERIFY_FAILED"))
    assert (type(refusal.value), refusal.value.retriable) == (Unreachable, True)


def test_a_client_shows_its_certificate(send: Send, files: Files, serving: Serving) -> None:
    context = files.context("localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.ca)
    server = serving(context)
    own = Security(ca_file=files.ca, certificate_file=files.of_client())
    assert send(own, Request("POST", server.address)).body == b"ok"
    # TLS 1.3 tells a client only after its handshake that its certificate is missing: before the
    # request is sent, or too late for that.
    with pytest.raises((ConnectionLost, Unreachable)):
        send(Security(ca_file=files.ca), Request("POST", server.address))


def test_a_kept_connection_is_not_used_by_a_client_that_trusts_others(
    files: Files, serving: Serving
) -> None:
    server, pool = serving(files.context("localhost")), ConnectionPool()
    other = files.write("other.pem", Authority.new(name_text=PUBLIC).certificate_pem)
    StdlibTransport(Authenticator(Security(ca_file=files.ca)), pool=pool).send(
        Request("GET", server.address)
    )
    with pytest.raises(ServerNotTrusted):
        StdlibTransport(Authenticator(Security(ca_file=other)), pool=pool).send(
            Request("GET", server.address)
        )
    pool.close()


def test_a_forked_process_leaves_its_parents_connection_over_tls_alone(
    files: Files, serving: Serving
) -> None:
    """Its copy of the connection must not tell the server goodbye, nor use the keys again."""
    server = serving(files.context("localhost"))
    transport = StdlibTransport(Authenticator(Security(files.ca, SECRET)))
    request = Request("GET", server.address)
    transport.send(request)
    transport.send(request)
    assert server.connections == 1
    child = os.fork()
    if not child:
        try:
            os._exit(int(transport.send(request).status != HTTPStatus.OK))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert server.connections == 2
    transport.send(request)
    assert server.connections == 2
    transport.close()


def test_a_new_client_sees_a_changed_file_of_authorities(
    send: Send, files: Files, serving: Serving
) -> None:
    server = serving(files.context("localhost"))
    security = Security(ca_file=files.ca)
    send(security, Request("GET", server.address))
    files.write("ca.pem", Authority.new(name_text=PUBLIC).certificate_pem + b"\n")
    with pytest.raises(ServerNotTrusted):
        send(security, Request("GET", server.address))


@pytest.mark.parametrize("credentials", [{"ca_file": "x"}, {"certificate_file": "x"}])
@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, credentials: dict[str, str], content: bytes | None
) -> None:
    path = tmp_path / "file.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnusableClientCredentials, match=f"{path} cannot be used: "):
        Client("localhost:1", security=Security(**dict.fromkeys(credentials, str(path))))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_a_token_goes_over_http_to_this_machine(host: str) -> None:
    name = host.strip("[]")
    shown = Authenticator(Security(token=SECRET)).headers("http", name)
    assert shown == {"authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("host", [ELSEWHERE, "10.0.0.1:80", "127.0.0.1.example", "[::2]:1"])
def test_a_token_never_goes_over_http_to_another_machine(send: Send, host: str) -> None:
    with pytest.raises(TokenNotSent, match="nothing was sent") as refusal:
        send(Security(token=SECRET), Request("POST", f"http://{host}/v1/metadata"))
    assert not refusal.value.retriable
    assert SECRET not in f"{refusal.value!r} {refusal.value}"


def test_a_client_that_may_not_send_its_token_says_so_at_once() -> None:
    with Client(ELSEWHERE, security=Security(token=SECRET)) as client:
        with pytest.raises(TokenNotSent):
            client.list_topics()
        with pytest.raises(TokenNotSent):
            client.fetch("t", 0, 0)


@pytest.mark.parametrize("with_authority", [True, False])
def test_a_file_for_keys_that_cannot_be_written_is_named(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_authority: bool
) -> None:
    ca_file = files.ca if with_authority else None
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path))
    _tls_context.cache_clear()
    with pytest.raises(UnusableClientCredentials, match=r"SSLKEYLOGFILE: .* Is a directory"):
        _ = Authenticator(Security(ca_file=ca_file)).tls


def test_a_token_is_in_no_text(files: Files) -> None:
    file = files.write("token", SECRET.encode())
    for security in (Security(token=SECRET), Security(token_file=file)):
        client = Client("localhost:1", security=security)
        texts = (security, client, client.authenticator, client.transport, client.core)
        assert SECRET not in "".join(f"{text!r}{text}" for text in texts)
        client.close()
    shown = Authenticator(Security(token=SECRET)).headers("https", ELSEWHERE)
    assert SECRET not in repr(Request("GET", "https://localhost:1", headers=shown))


def test_no_log_has_a_token(send: Send, plain: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    send(Security(token=SECRET), Request("GET", plain.address))
    assert accepting(SECRET)(plain.requests[-1]) == OK
    assert SECRET not in caplog.text


async def test_no_log_of_the_channel_has_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with channel_server(None, lambda _: None) as url:
        channel = await open_channel(url, "g", Authenticator(Security(token=SECRET)))
        await channel.close()
    # The server of this test logs what it receives: that the token was sent is in its log.
    told = {True: "", False: ""}
    for record in caplog.records:
        told[record.name == "websockets.server"] += record.getMessage()
    assert SECRET in told[True]
    assert SECRET not in told[False]


@pytest.mark.parametrize("content", ["", "\n", "se cret", "secret\r\nx: y", "s\0cret", "sécret"])
def test_a_token_in_a_file_that_no_header_can_carry_is_refused_and_not_shown(
    files: Files, content: str
) -> None:
    file = files.write("token", content.encode())
    with pytest.raises(UnusableClientCredentials, match=f"the token in {file} ") as refusal:
        Client("localhost:1", security=Security(token_file=file))
    raised: BaseException | None = refusal.value
    while raised is not None:
        assert "cret" not in str(raised)
        raised = raised.__cause__ or raised.__context__


def test_a_file_that_is_no_token_is_not_sent(files: Files) -> None:
    file = files.write("disk.img", b"x" * (1 << 20))
    with pytest.raises(UnusableClientCredentials, match=f"the token in {file} .*longer"):
        Client("localhost:1", security=Security(token_file=file))


def test_the_line_end_of_a_token_file_is_not_part_of_the_token(
    send: Send, files: Files, plain: Server
) -> None:
    plain.script = accepting(SECRET)
    security = Security(token_file=files.write("token", f"{SECRET}\r\n".encode()))
    assert send(security, Request("GET", plain.address)).status == HTTPStatus.OK


def test_there_is_one_token() -> None:
    with pytest.raises(UnusableClientCredentials, match="not both"):
        Security(token=SECRET, token_file=str(Path("token")))


async def test_a_running_client_uses_a_token_that_was_replaced(files: Files, plain: Server) -> None:
    file = files.write("token", SECRET.encode())
    authenticator = Authenticator(Security(token_file=file))
    asynchronous, stdlib = AsyncHttpTransport(authenticator), StdlibTransport(authenticator)
    request = Request("POST", plain.address, body=b"once")
    for old, new, transport in ((SECRET, SUCCESSOR, asynchronous), (SUCCESSOR, SECRET, stdlib)):
        plain.script = accepting(new)
        files.write("token", new.encode())
        plain.requests.clear()
        sent = transport.send(request)
        answer = await sent if isinstance(sent, Awaitable) else sent
        assert answer.status == HTTPStatus.OK
        assert [accepting(old)(heard) == OK for heard in plain.requests] == [True, False]
    await asynchronous.aclose()
    stdlib.close()


@pytest.mark.parametrize("content", [SECRET, "", None])
def test_a_refused_token_is_not_sent_again(
    send: Send, files: Files, plain: Server, content: str | None
) -> None:
    file = files.write("token", SECRET.encode())
    plain.script = accepting()

    def refuse(request: bytes) -> bytes:
        # While the server refuses the token, its file is emptied or removed.
        Path(file).unlink() if content is None else Path(file).write_text(content)
        return accepting()(request)

    plain.script = refuse
    answer = send(Security(token_file=file), Request("GET", plain.address))
    assert (answer.status, len(plain.requests)) == (HTTPStatus.UNAUTHORIZED, 1)


@pytest.mark.parametrize("stated", [True, False], ids=["by a service", "by a proxy"])
@pytest.mark.parametrize(("code", "error"), [(40150, Unauthorized), (40350, Forbidden)])
def test_a_definite_refusal_ends_a_call_at_once(
    plain: Server, code: int, error: type[LeadlineError], stated: bool
) -> None:
    body = b'{"error_code": %d, "message": "no", "outcome": "refused"}' % code if stated else b""
    head = b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n" % (code // 100, len(body))
    plain.script = lambda _: head + body
    with Client(plain.address, security=Security(token=SECRET)) as client:
        with pytest.raises(error) as refusal:
            client.list_topics()
        assert len(plain.requests) == 1
        assert ("no" if stated else "token") in refusal.value.message
        with pytest.raises(error):  # This one is refused when it looks for the leader.
            client.fetch("t", 0, 0)
    assert len(plain.requests) == 2


def test_producers_and_consumers_take_the_security_of_their_client(plain: Server) -> None:
    plain.script = accepting()
    security = Security(token=SECRET)
    with Client(plain.address, security=security) as client:
        for made in (Producer(client), Consumer(client)):
            assert made._client.authenticator.security is security
            made.close()
        with pytest.raises(TypeError, match="security"):
            Producer(client, security=security)
    producer = Producer(plain.address, security=security)
    with pytest.raises(LeadlineError):
        producer.send("t", b"x")
    producer.close()
    assert accepting(SECRET)(plain.requests[-1]) == OK


async def test_an_asynchronous_producer_of_a_client_takes_no_security_of_its_own() -> None:
    async with AsyncClient("localhost:1") as client:
        with pytest.raises(TypeError, match="security"):
            AsyncProducer(client, security=Security(token=SECRET))


def test_the_environment_names_the_files_of_all_clients(
    files: Files, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = files.context("localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.ca)
    server = serving(context)
    server.script = accepting(SECRET)
    monkeypatch.setenv("LEADLINE_CA_FILE", files.ca)
    monkeypatch.setenv("LEADLINE_TOKEN_FILE", files.write("token", SECRET.encode()))
    monkeypatch.setenv("LEADLINE_CERTIFICATE_FILE", files.of_client())
    with Client(server.address) as client:
        assert client.transport.send(Request("GET", server.address)).status == HTTPStatus.OK
    assert Security.from_environment({"LEADLINE_TOKEN_FILE": ""}) == Security()


@asynccontextmanager
async def channel_server(
    context: ssl.SSLContext | None, answer: Callable[[Handshake], Answer | None]
) -> AsyncIterator[str]:
    """Give the URL of a coordinator that accepts a channel unless `answer` has another answer."""

    async def check(_: ServerConnection, request: Handshake) -> Answer | None:
        return answer(request)

    async def wait(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with serve(wait, "localhost", 0, ssl=context, process_request=check) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"{'https' if context else 'http'}://localhost:{port}"


async def test_the_channel_checks_the_server_and_shows_a_token_that_was_replaced(
    files: Files,
) -> None:
    heard: list[str | None] = []

    def answer(request: Handshake) -> Answer | None:
        heard.append(request.headers.get("authorization"))
        return None if heard[-1] == f"Bearer {SUCCESSOR}" else Answer(401, "No", Headers(), b"")

    file = files.write("token", SECRET.encode())
    authenticator = Authenticator(Security(ca_file=files.ca, token_file=file))
    async with channel_server(files.context("localhost"), answer) as url:
        with pytest.raises(LeadlineError) as refusal:
            await open_channel(url, "g", authenticator)
        assert (refusal.value.retriable, len(heard)) == (False, 1)
        files.write("token", SUCCESSOR.encode())
        channel = await open_channel(url, "g", authenticator)
        await channel.close()
        assert heard[1:] == [f"Bearer {SECRET}", f"Bearer {SUCCESSOR}"]
        other = files.write("other.pem", Authority.new(name_text=PUBLIC).certificate_pem)
        with pytest.raises(ServerNotTrusted):
            await open_channel(url, "g", Authenticator(Security(ca_file=other)))
        assert len(heard) == 3


async def test_the_channel_says_how_long_a_quota_makes_wait() -> None:
    twice = Headers([("Retry-After", "3"), ("Retry-After", "4")])
    async with channel_server(None, lambda _: Answer(429, "No", twice, b"")) as url:
        with pytest.raises(QuotaExceeded) as refusal:
            await open_channel(url, "g", Authenticator(Security()))
    assert refusal.value.retry_after_s in {3, 4}


async def test_the_channel_takes_a_token_nowhere_else() -> None:
    heard: list[str] = []
    authenticator = Authenticator(Security(token=SECRET))

    def hear(request: Handshake) -> None:
        heard.append(request.path)

    async with channel_server(None, hear) as other:
        location = Headers(location=other.replace("http", "ws") + "/elsewhere")
        async with channel_server(None, lambda _: Answer(307, "There", location, b"")) as url:
            with pytest.raises(LeadlineError):
                await open_channel(url, "g", authenticator)
    assert heard == []
    with pytest.raises(TokenNotSent):
        await open_channel(f"http://{ELSEWHERE}", "g", authenticator)
