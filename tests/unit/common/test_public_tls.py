"""TLS on the listener for clients: its certificate, theirs, and those who speak something else."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import connect as connect_websocket

from leadline_cli.authorities import PUBLIC
from leadline_cli.certificates import Authority
from leadline_cli.credentials import LOOPBACK_HOSTS, Credentials
from leadline_client.errors import ConnectionLost
from leadline_common.http import handshakes
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.connections import protocol_of
from leadline_common.http.handshakes import HandshakeListener
from leadline_common.http.listeners import bind, bind_public
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.public_tls import CLIENT_CERTIFICATE_KEY, PublicTls, PublicTrust, name_in
from leadline_common.http.tls_files import TlsFiles
from leadline_common.http.websocket_connections import BoundedWebSocket
from leadline_common.identity import ServiceAddress, ServiceIdentity, UnusableCredentials
from leadline_common.metrics import Metrics
from leadline_common.settings import ServiceSettings
from leadline_controller.adapters.peer_audit import HttpPeerAuditClient
from tests.support.services.zookeeper import until

SERVICES_LOOP = True
BROKER = ServiceIdentity("broker", 1)
TEN_YEARS = 3_650


def settings_for(credentials: Credentials, **more: Any) -> ServiceSettings:
    files = credentials.public_settings_of(BROKER)
    return ServiceSettings(
        listen_tls_certificate_file=files["listen.tls.certificate.file"],
        tls_ca_file=files["tls.ca.file"],
        **more,
    )


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    made = Credentials(tmp_path)
    made.create_public([BROKER])
    return made


async def say_who(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the name in the client's certificate, or with null."""
    name = json.dumps(scope.get(CLIENT_CERTIFICATE_KEY))
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": name})
        await receive()
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": name.encode()})


@asynccontextmanager
async def serving(
    settings: ServiceSettings, plain_answer: bytes = b"", most: int = 256, app: Any = say_who
) -> AsyncIterator[tuple[int, ConnectionBounds, Metrics]]:
    """Serve an application as a service does; gives the port, the bounds and the metrics."""
    listener, metrics = bind_public(settings), Metrics(process=False)
    assert listener.tls is not None
    bounds = ConnectionBounds(settings, metrics)
    config = uvicorn.Config(
        app, http=protocol_of(bounds), ws=BoundedWebSocket, lifespan="off", log_config=None
    )
    config.load()
    state = uvicorn.Server(config).server_state

    def create_protocol() -> Any:
        return config.http_protocol_class(config, state, {})  # type: ignore[call-arg]  # it is uvicorn's

    listening = HandshakeListener(
        listener.socket,
        listener.tls,
        create_protocol,
        bounds,
        plain_answer=plain_answer,
        most=most,
        close_timeout_s=3_600,
    )
    listening.start()
    try:
        yield listener.port, bounds, metrics
    finally:
        listening.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await until(lambda: not bounds._open, "all connections are closed")


# The service's own certificate.


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_listener_with_a_certificate_has_a_url_of_https(
    credentials: Credentials, host: str
) -> None:
    listener = bind_public(settings_for(credentials, listen_host=host))
    listener.socket.close()
    assert listener.url.startswith("https://")
    plain = bind_public(ServiceSettings(listen_host=host))
    plain.socket.close()
    assert plain.url.startswith("http://")


def replace_certificate(credentials: Credentials, days_ago: int = 0, *hosts: str) -> None:
    authority = Authority.load(
        credentials.public_authority.read_bytes(), credentials.public_authority_key.read_bytes()
    )
    then = datetime.now(UTC) - timedelta(days=days_ago)
    issued = authority.issue_public(BROKER, hosts or LOOPBACK_HOSTS, then)
    credentials.public_certificate_of(BROKER).write_bytes(issued)


def lock_key(credentials: Credentials) -> None:
    path = credentials.public_certificate_of(BROKER)
    secret = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(secret, ec.EllipticCurvePrivateKey)
    locked = secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    certificate = path.read_bytes().partition(b"-----BEGIN PRIVATE")[0]
    path.write_bytes(certificate + locked)


@pytest.mark.parametrize(
    ("spoil", "more", "says"),
    [
        (lambda _: None, {"advertised_url": "http://127.0.0.1:1"}, "begin it with https://"),
        (lambda _: None, {"advertised_url": "https://b1.example:1"}, "not valid for 'b1.example'"),
        (lambda _: None, {"listen_tls_client_ca_file": "nowhere"}, "nowhere .*No such file"),
        (lambda one: replace_certificate(one, TEN_YEARS + 1), {}, "expired at"),
        (lambda one: replace_certificate(one, -2), {}, "check this machine's clock"),
        (lambda one: replace_certificate(one, 0, "other"), {}, "IP address mismatch"),
        (lambda one: one.public_certificate_of(BROKER).write_text("x"), {}, "cannot be used"),
        (lock_key, {}, "the key has a password"),
    ],
    ids=[
        "advertised as http",
        "advertised as another host",
        "no clients' authority",
        "expired",
        "not yet valid",
        "of another host",
        "garbage",
        "password",
    ],
)
def test_a_service_does_not_start_with_what_clients_would_not_accept(
    credentials: Credentials, spoil: Any, more: dict[str, Any], says: str
) -> None:
    spoil(credentials)
    settings = settings_for(credentials).model_copy(update=more)
    with pytest.raises(UnusableCredentials, match=says):
        PublicTls.of(settings)


def test_without_a_certificate_there_is_no_tls_and_nobody_can_show_one() -> None:
    assert PublicTls.of(ServiceSettings()) is None
    with pytest.raises(UnusableCredentials, match=r"needs listen\.tls\.certificate\.file"):
        PublicTls.of(ServiceSettings(listen_tls_client_ca_file="clients.pem"))


@pytest.mark.parametrize(
    ("days_ago", "says"),
    [(TEN_YEARS - 31, ""), (TEN_YEARS - 29, "expires at"), (TEN_YEARS + 1, "clients accept no")],
)
async def test_the_end_of_the_public_certificate_is_reported(
    credentials: Credentials, days_ago: int, says: str
) -> None:
    replace_certificate(credentials, days_ago)
    path = credentials.public_certificate_of(BROKER)
    listener = bind("127.0.0.1", 0)
    listener.socket.close()
    tls = PublicTls.load(path, None, "127.0.0.1")
    problems = TlsFiles(type(listener)(listener.socket, "127.0.0.1", 1, tls)).problems()
    assert bool(problems) == bool(says)
    assert says in "".join(problem.reason for problem in problems)
    assert all(problem.serving for problem in problems) == (days_ago < TEN_YEARS)


async def test_trusted_authorities_are_read_again(credentials: Credentials, tmp_path: Path) -> None:
    path = tmp_path / "trusted.pem"
    path.write_bytes(Authority.new(name_text=PUBLIC).certificate_pem)
    trust = PublicTrust.load(path)
    async with serving(settings_for(credentials)) as (port, *_):

        async def asks() -> Any:
            async with httpx.AsyncClient(verify=trust.client) as http:
                return (await http.get(f"https://127.0.0.1:{port}/")).json()

        with pytest.raises(httpx.ConnectError, match="verify failed"):
            await asks()
        path.write_bytes(credentials.public_authority.read_bytes())
        trust.reload_if_changed()
        assert await asks() is None


async def test_controllers_read_the_audit_of_others_over_tls(credentials: Credentials) -> None:
    async def empty(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    trust = PublicTrust.load(credentials.public_authority)
    async with serving(settings_for(credentials), app=empty) as (port, *_):
        peer = ServiceAddress(ServiceIdentity("controller", 2), f"https://127.0.0.1:{port}")
        client = HttpPeerAuditClient(PeerConnections(trust=trust))
        assert [batch async for batch in client.export(peer, 0)] == []
        with pytest.raises(ConnectionLost, match="verify failed"):
            _ = [batch async for batch in HttpPeerAuditClient().export(peer, 0)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_agree_on_http_1_1(
    credentials: Credentials, version: ssl.TLSVersion
) -> None:
    client = ssl.create_default_context(cafile=str(credentials.public_authority))
    client.minimum_version = client.maximum_version = version
    client.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(settings_for(credentials)) as (port, *_):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        session = writer.get_extra_info("ssl_object")
        assert session.selected_alpn_protocol() == "http/1.1"
        writer.transport.abort()


def test_versions_before_1_2_are_refused(credentials: Credentials) -> None:
    tls = PublicTls.of(settings_for(credentials))
    assert tls is not None
    assert tls.server.minimum_version == ssl.TLSVersion.TLSv1_2


# Certificates of clients.


@pytest.mark.parametrize(
    ("uris", "common", "name"),
    [
        (["leadline://user/anna"], ["other"], "anna"),
        ([], ["anna"], "anna"),
        (["https://example.org"], ["anna"], "anna"),
        (["leadline://user/anna", "leadline://user/bert"], ["anna"], None),
        (["leadline://broker/1"], ["broker 1"], None),
        (["leadline://user/"], ["anna"], None),
        (["leadline://user/a/b"], ["anna"], None),
        ([], ["anna", "bert"], None),
        ([], [], None),
    ],
)
def test_a_certificate_names_one_user_or_nobody(
    uris: list[str], common: list[str], name: str | None
) -> None:
    certificate = {
        "subject": tuple((("commonName", value),) for value in common),
        "subjectAltName": tuple(("URI", value) for value in uris),
    }
    assert name_in(certificate) == name


def client_certificate(authority: Authority, path: Path, user: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.UniformResourceIdentifier(f"leadline://user/{user}")]
            ),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)


async def answers(credentials: Credentials, port: int, certificate: Path | None) -> set[Any]:
    """Ask over HTTP, twice over one connection, and over a WebSocket."""
    tls = ssl.create_default_context(cafile=str(credentials.public_authority))
    if certificate is not None:
        tls.load_cert_chain(certificate)
    async with httpx.AsyncClient(verify=tls) as http:
        said = [(await http.get(f"https://127.0.0.1:{port}/")).json() for _ in range(2)]
    async with connect_websocket(f"wss://127.0.0.1:{port}/", ssl=tls) as channel:
        said.append(json.loads(await channel.recv()))
    return set(said)


async def test_the_name_of_a_verified_client_is_in_the_scope(
    credentials: Credentials, tmp_path: Path
) -> None:
    ours, theirs = Authority.new(), Authority.new()
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(ours.certificate_pem)
    anna, stranger = tmp_path / "anna.pem", tmp_path / "stranger.pem"
    client_certificate(ours, anna, "anna")
    client_certificate(theirs, stranger, "anna")
    settings = settings_for(credentials, listen_tls_client_ca_file=str(trusted))
    async with serving(settings) as (port, _, metrics):
        assert await answers(credentials, port, anna) == {"anna"}
        assert await answers(credentials, port, None) == {None}
        with pytest.raises(httpx.HTTPError):
            await answers(credentials, port, stranger)
        assert b'reason="certificate refused: ' in metrics.render()
    async with serving(settings_for(credentials)) as (port, *_):
        assert await answers(credentials, port, anna) == {None}, "nobody has asked for it"


# Those who do not speak TLS, or not well.


async def test_plain_http_is_answered_plainly(credentials: Credentials) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\nuse TLS"
    async with serving(settings_for(credentials), answer) as (port, _, metrics):
        async with httpx.AsyncClient() as http:
            said = await http.post(f"http://127.0.0.1:{port}/", content=b"x" * 100_000)
        assert (said.status_code, said.text) == (400, "use TLS")
        assert b'reason="no TLS"} 1.0' in metrics.render()
        assert await answers(credentials, port, None) == {None}


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01", b"GET"], ids=repr)
async def test_whoever_finishes_no_handshake_is_disconnected(
    credentials: Credentials, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_TIMEOUT_S", 0.2)
    async with serving(settings_for(credentials), b"no") as (port, bounds, _):
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await reader.read() in (b"", b"no")
            writer.close()
        assert not bounds._open


async def test_many_handshakes_of_one_address_end_none_of_another(credentials: Credentials) -> None:
    async with serving(settings_for(credentials), b"no", most=20) as (port, *_):
        first = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        many = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        async with asyncio.timeout(20):
            for reader, _ in many[:20]:
                assert await reader.read() == b""
        assert not first[0].at_eof()
        for _, writer in (first, *many):
            writer.transport.abort()


async def test_a_connection_whose_end_is_not_confirmed_ends(credentials: Credentials) -> None:
    """The other end of TLS says so, too; one that never does keeps no connection."""
    loop = asyncio.get_running_loop()
    tls = ssl.create_default_context(cafile=str(credentials.public_authority))
    async with serving(settings_for(credentials, transfer_grace_ms=100)) as (port, bounds, _):
        plain = await loop.run_in_executor(None, silent_reader, tls, port)
        await until(lambda: not bounds._open, "the connection is closed")
        plain.close()


def silent_reader(tls: ssl.SSLContext, port: int) -> ssl.SSLSocket:
    """Read an answer, and not the end after it."""
    session = tls.wrap_socket(
        socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1"
    )
    session.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert session.recv(10) == b"HTTP/1.1 2"
    return session


def test_the_files_of_credentials_are_for_their_owner_only(credentials: Credentials) -> None:
    for path in (credentials.public_authority_key, credentials.public_certificate_of(BROKER)):
        assert path.stat().st_mode & 0o077 == 0
