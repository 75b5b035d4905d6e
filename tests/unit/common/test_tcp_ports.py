"""Free ports."""

from __future__ import annotations

import socket

import pytest

from leadline_common import tcp_ports


def test_they_differ_and_can_be_bound() -> None:
    found = tcp_ports.free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.socket() as server:
            server.bind((tcp_ports.LOOPBACK, port))


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind((tcp_ports.LOOPBACK, 0))
        used = server.getsockname()[1]
        monkeypatch.setattr(tcp_ports, "_FIRST", used)
        monkeypatch.setattr(tcp_ports, "_LAST", used)
        with pytest.raises(OSError, match="0 of 1"):
            tcp_ports.free_port()
