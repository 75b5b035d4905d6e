"""Free and reserved ports."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from leadline_common import tcp_ports
from leadline_common.http.listeners import bind
from leadline_common.tcp_ports import LOOPBACK, ReservedPorts


@pytest.fixture
def reserved() -> Iterator[ReservedPorts]:
    ports = ReservedPorts()
    yield ports
    ports.release()


@pytest.fixture
def only_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """The one port that is looked at, free at first."""
    port = tcp_ports.free_port()
    monkeypatch.setattr(tcp_ports, "_FIRST", port)
    monkeypatch.setattr(tcp_ports, "_LAST", port)
    return port


def test_ports_differ_and_a_service_can_listen_on_each(reserved: ReservedPorts) -> None:
    found = [reserved.take() for _ in range(20)]
    assert len(set(found)) == 20
    for port in found:
        bind(LOOPBACK, port).socket.close()


def test_a_port_in_use_is_not_found(only_port: int, reserved: ReservedPorts) -> None:
    with socket.create_server((LOOPBACK, only_port)):
        assert not reserved.keep(only_port)
        with pytest.raises(OSError, match="no free port"):
            tcp_ports.free_port()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a port be held")
def test_nobody_else_finds_a_reserved_port_between_two_runs_of_its_service(
    only_port: int, reserved: ReservedPorts
) -> None:
    assert reserved.take() == only_port
    for _ in range(2):
        with pytest.raises(OSError, match="no free port"):
            tcp_ports.free_port()
        bind(LOOPBACK, only_port).socket.close()
    reserved.release()
    assert tcp_ports.free_port() == only_port


def test_a_port_is_handed_out_once(only_port: int, reserved: ReservedPorts) -> None:
    assert reserved.keep(only_port)
    assert not reserved.keep(only_port)
    with pytest.raises(OSError, match="no free port"):
        reserved.take()
