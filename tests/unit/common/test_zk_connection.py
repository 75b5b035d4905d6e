"""Which server a connection tries, for how long, and when it leaves a silent one."""

from __future__ import annotations

import socket
import time
from contextlib import nullcontext, suppress

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect

from leadline_common.tcp_ports import LOOPBACK, free_port
from leadline_common.zk.connection import Connection
from leadline_common.zk.connection_record import NO_SESSION, ConnectionRecord
from leadline_common.zk.requests import EncodedRequest
from leadline_common.zk.transport import _Client

SESSION_MS = 6_000
READ_S = SESSION_MS / 1000 * 2 / 3


def connection_to(hosts: str) -> Connection:
    connection = _Client(hosts, SESSION_MS, None, None, ConnectionRecord())._connection
    assert isinstance(connection, Connection)
    return connection


def test_the_latest_server_is_tried_last() -> None:
    connection = connection_to(f"{LOOPBACK}:1,127.0.0.2:2,127.0.0.3:3")
    for port in (1, 2, 3):
        connection._server = f"127.0.0.{port}", port
        assert connection._expand_client_hosts()[-1][2] == port


def test_no_attempt_takes_more_than_its_part_of_the_session() -> None:
    port = free_port()
    connection = connection_to(f"{LOOPBACK}:{port},127.0.0.2:2,127.0.0.3:3")
    with pytest.raises(ConnectionDropped):
        connection._connect(LOOPBACK, LOOPBACK, port)
    assert connection.handler.connect_within_s == SESSION_MS / 1000 / 3


def test_a_server_that_does_not_answer_is_given_more_time_from_attempt_to_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that starts may never answer a connection, but the next one at once."""
    waits, answers = [], [False, False, False, False, True, False]

    def wait(_: object, timeout_s: float, request: object, xid: int | None = None) -> object:
        waits.append(timeout_s)
        if not answers.pop(0):
            raise KazooTimeoutError
        return Connect(0, 1, SESSION_MS, 1, bytes(16), read_only=False), 1

    monkeypatch.setattr(ConnectionHandler, "_invoke", wait)
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        connection = connection_to(f"{LOOPBACK}:{port}")
        for answer in answers[:]:
            with nullcontext() if answer else pytest.raises(KazooTimeoutError):
                connection._connect(LOOPBACK, LOOPBACK, port)
            assert connection._socket is not None
            connection._socket.close()
    assert waits == [1.5, 3, 6, 6, 6, 1.5]


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kazoo send and receive without a socket."""
    monkeypatch.setattr(ConnectionHandler, "_send_request", lambda *_: None)
    monkeypatch.setattr(ConnectionHandler, "_read_socket", lambda *_: None)


@pytest.mark.usefixtures("answered")
def test_a_server_that_leaves_requests_unanswered_is_left() -> None:
    connection = connection_to(f"{LOOPBACK}:1")
    connection._send_request(READ_S, 1)
    connection._send_request(READ_S, 1)
    connection._unanswered_since_s = time.monotonic() - SESSION_MS / 1000 / 2

    with pytest.raises(ConnectionDropped):
        connection._send_request(READ_S, 1)


@pytest.mark.usefixtures("answered")
def test_a_server_that_answers_is_kept_however_long_ago_it_was_asked_first() -> None:
    connection = connection_to(f"{LOOPBACK}:1")
    connection._unanswered_since_s = time.monotonic() - SESSION_MS / 1000 / 2
    connection._read_socket(READ_S)

    connection._send_request(READ_S, 1)


def test_a_record_names_each_server_until_one_is_connected() -> None:
    record = ConnectionRecord()
    assert record.no_session() == NO_SESSION
    assert record.no_session("an ACL") == f"{NO_SESSION}: an ACL"
    for server, reason in (("b:1", "silent"), ("a:1", "refused"), ("b:1", "older")):
        record.failed(server, reason)
    assert record.no_session("an ACL") == f"{NO_SESSION}: a:1: refused; b:1: older"
    record.connected()
    assert record.no_session() == NO_SESSION


def test_a_session_begins_with_what_the_one_before_has_seen() -> None:
    record = ConnectionRecord()
    record.saw(7)
    record.saw(5)
    assert _Client("127.0.0.1:1", SESSION_MS, None, None, record).last_zxid == 7


def test_a_server_is_asked_for_older_data_without_a_session_of_its_own() -> None:
    """With the id 0 it would make one."""
    connection, address = connection_to("127.0.0.1:1"), ("127.0.0.1", 1)
    client = connection.client
    client.last_zxid = 7
    connection._refusals[address] = 3
    with connection._stated_zxid(address):
        asked = client.last_zxid, bool(client._session_id)
    assert asked == (0, True)
    assert (client.last_zxid, bool(client._session_id)) == (7, False)


def break_on(connection: Connection, size: int) -> int:
    """Let the connection break on a request; return the size that is named then."""
    connection.client._pending.clear()
    connection.client._pending.append((EncodedRequest(bytes(size)), None, 1))
    with suppress(ConnectionDropped), connection._noting_large_requests():
        raise ConnectionDropped
    return connection._record.large_request


def test_a_request_is_named_once_it_has_broken_two_connections_in_a_row() -> None:
    connection = connection_to("127.0.0.1:1")
    sizes = (100, 100, 20_000, 30_000, 20_000, 20_000)
    assert [break_on(connection, size) for size in sizes] == [0, 0, 0, 0, 0, 20_000]
