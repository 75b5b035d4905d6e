"""Commands show a token to the cluster that it is for, and to no other."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from leadline_cli import restart_requests
from leadline_cli.cluster_file import ClusterFile, Service
from leadline_cli.credentials import client_security, credentials_in
from leadline_cli.main import app
from leadline_cli.restart_requests import SUPERVISOR_LOCK, RestartRequests
from leadline_client.file_lock import FileLock
from leadline_client.security import Authenticator, Security
from leadline_common.identity import ServiceIdentity
from tests.unit.client.test_transports import OK, Server

SECRET = "admin.3f0c-secret"  # noqa: S105 - of these tests alone
SHOWN = f"authorization: bearer {SECRET}\r\n".encode()
COMMANDS = [["topics", "list"], ["produce", "t"], ["consume", "t"], ["doctor"], ["groups", "list"]]


@pytest.fixture
def server() -> Iterator[Server]:
    """A broker that refuses everything."""
    running = Server()
    running.script = lambda _: OK.replace(b"200 OK", b"401 Unauthorized")
    yield running
    running.close()


@pytest.fixture
def data_dir(tmp_path: Path, server: Server) -> Path:
    """The directory of a cluster with this broker, and its token."""
    broker = Service(1, server.address, 1, ())
    ClusterFile("c", "127.0.0.1:1", (), (broker,)).write(tmp_path)
    token = credentials_in(tmp_path).admin_token
    token.parent.mkdir()
    token.write_text(f"{SECRET}\n")
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_shows_the_token_of_its_data_directory(
    server: Server, data_dir: Path, words: list[str]
) -> None:
    ended = CliRunner().invoke(app, [*words, "--data-dir", str(data_dir)], input="line\n")
    assert ended.exit_code == 1, ended.output
    assert server.requests
    assert all(SHOWN in request.lower() for request in server.requests)
    assert SECRET not in ended.output


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_token_of_a_data_directory_is_not_shown_to_another_cluster(
    server: Server, data_dir: Path, words: list[str]
) -> None:
    """`data` is the default directory, so it may hold a token when --bootstrap names a stranger."""
    where = ["--data-dir", str(data_dir), "--bootstrap", server.address]
    CliRunner().invoke(app, [*words, *where], input="line\n")
    assert server.requests
    assert not any(b"authorization" in request.lower() for request in server.requests)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_token_file_is_an_option_and_a_variable(
    server: Server, tmp_path: Path, words: list[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    where = ["--bootstrap", server.address]
    for more, variables in (
        (["--token-file", str(file)], {}),
        ([], {"LEADLINE_TOKEN_FILE": str(file)}),
    ):
        server.requests.clear()
        CliRunner().invoke(app, [*words, *where, *more], input="line\n", env=variables)
        assert server.requests
        assert all(SHOWN in request.lower() for request in server.requests)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("option", ["--ca-file", "--token-file", "--certificate-file"])
def test_a_file_that_cannot_be_used_is_named_and_nothing_is_sent(
    server: Server, words: list[str], option: str
) -> None:
    where = ["--bootstrap", server.address, option, "/none"]
    ended = CliRunner().invoke(app, [*words, *where], input="line\n")
    assert (ended.exit_code, server.requests) == (1, [])
    assert "/none cannot be used" in " ".join(ended.output.split())


@pytest.mark.parametrize("name", ["admin.token", "ca.pem"])
def test_no_cluster_is_started_whose_credentials_cannot_be_used(tmp_path: Path, name: str) -> None:
    file = credentials_in(tmp_path).directory / name
    file.parent.mkdir()
    file.touch()
    ended = CliRunner().invoke(app, ["up", "--data-dir", str(tmp_path)])
    printed = " ".join(ended.output.split())
    assert (ended.exit_code, str(file) in printed) == (1, True), printed
    assert isinstance(ended.exception, SystemExit), "it is a message, not a traceback"
    assert not (tmp_path / "logs").exists(), "no process was started"


def test_no_broker_is_restarted_that_could_not_be_asked_whether_it_is_ready(
    data_dir: Path,
) -> None:
    file = credentials_in(data_dir).admin_token
    file.write_text("")
    with FileLock.acquire(data_dir / SUPERVISOR_LOCK):  # as if `leadline up` ran
        words = ["brokers", "restart", "1", "--force", "--data-dir", str(data_dir)]
        ended = CliRunner().invoke(app, words)
    assert (ended.exit_code, str(file) in " ".join(ended.output.split())) == (1, True), ended.output
    assert RestartRequests(data_dir).pending() == []


def test_what_is_given_goes_before_what_is_found(data_dir: Path) -> None:
    credentials_in(data_dir).public_authority.touch()
    found = client_security(data_dir)
    assert found.ca_file == str(credentials_in(data_dir).public_authority)
    given = Security("mine", None, "its")
    assert client_security(data_dir, given) == given
    assert client_security(data_dir / "none") == Security()


def test_a_restarted_broker_of_a_secure_cluster_is_seen_to_be_ready(tmp_path: Path) -> None:
    credentials, broker = credentials_in(tmp_path), ServiceIdentity("broker", 1)
    credentials.create_public([broker])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(credentials.public_certificate_of(broker))
    server = Server(context)
    authenticator = Authenticator(client_security(tmp_path))
    assert restart_requests.answers_ready(server.address, authenticator)
    server.close()
