"""What fault scenarios use to bring faults about: they happen, and end, when they are said to."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from leadline_common.tcp_ports import LOOPBACK
from tests.support.faults.faults import LEAST_SILENCE_S, no_acknowledgement
from tests.support.faults.impaired import KINDS, Channel
from tests.support.faults.links import Links, LinkThread, Pace, Proxy
from tests.support.faults.load import Ack
from tests.support.faults.scenario import Scenario
from tests.support.faults.socket_owner import owner_of
from tests.support.services.cluster import Cluster, wait_until


@dataclass
class NoCluster:
    """As much of a cluster as links need: nothing runs, and faults are noted."""

    noted: list[tuple[str, str]] = field(default_factory=list)

    def note(self, action: str, target: str) -> None:
        self.noted.append((action, target))


def test_the_owner_of_a_connection_is_found() -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        port, remote = client.getsockname()[1], server.getsockname()[1]
        assert owner_of(port, remote, [1, os.getpid()]) == os.getpid()
        assert owner_of(port, remote, []) is None
    assert owner_of(port, remote, [os.getpid()]) is None


SAME_PORT = """
import socket, sys
port, remote = map(int, sys.argv[1:])
with socket.socket() as one:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", port))
    one.connect(("127.0.0.1", remote))
    print("connected", flush=True)
    sys.stdin.read()
"""


def test_a_connection_is_told_from_one_of_another_process_with_the_same_port() -> None:
    """In S12 a link was not cut: its connection shared the local port with another one."""
    with (
        socket.create_server((LOOPBACK, 0)) as first,
        socket.create_server((LOOPBACK, 0)) as second,
        socket.socket() as ours,
    ):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Nobody gets a bound port by connecting, without saying that it may be shared.
        ours.bind((LOOPBACK, 0))
        ours.connect(first.getsockname())
        port, me = ours.getsockname()[1], os.getpid()
        to_first, to_second = (end.getsockname()[1] for end in (first, second))
        command = [sys.executable, "-c", SAME_PORT, str(port), str(to_second)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"connected\n"
            assert owner_of(port, to_first, [me, other.pid]) == me
            assert owner_of(port, to_second, [me, other.pid]) == other.pid
            other.communicate()


def test_a_slow_line_is_shared_and_late() -> None:
    pace = Pace(delay_s=0.3, bytes_per_s=1000)

    assert pace.arrival_s(10.0, 500) == pytest.approx(10.8)
    assert pace.arrival_s(10.0, 500) == pytest.approx(11.3)
    assert pace.arrival_s(20.0, 500) == pytest.approx(20.8)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


async def test_a_cut_is_silent_in_its_direction_and_what_was_sent_arrives_when_healed() -> None:
    known = NoCluster()
    with LinkThread() as thread:
        links = Links(cast("Cluster", known), thread)
        server = await asyncio.start_server(_echo, LOOPBACK, 0)
        proxy = Proxy(links, "b", server.sockets[0].getsockname()[:2], opened_by="a").serving()
        port = await thread.run(proxy.__aenter__())
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(b"1")
        assert await reader.read(1) == b"1"

        links.cut(("b", "a"))
        writer.write(b"2")

        async def held() -> bool:
            return links.held(("b", "a")) == 1

        await wait_until(held, "the answer met the cut")
        assert links.held(("a", "b")) == 0, "the other direction is open"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)

        links.heal()
        assert await reader.read(1) == b"2"
        writer.close()
        await writer.wait_closed()
        await thread.run(proxy.__aexit__(None, None, None))
        server.close()
    assert known.noted == [("cut", "b to a"), ("heal", "b to a")]


def test_only_the_chosen_requests_are_harmed() -> None:
    channel = Channel(cast("Cluster", NoCluster()), Random(1))
    assert {channel.fate_of("/fetch") for _ in range(200)} == {("", 0.0)}
    channel.paths = {"/fetch"}
    for _ in range(200):
        channel.fate_of("/fetch")
        assert channel.fate_of("/other") == ("", 0.0)

    assert set(channel.done) == set(KINDS)
    assert 20 < channel.done.total() < 80
    assert channel.seen == {"/fetch": 400, "/other": 200}


async def _acknowledge(partition: int, *, sent_before: bool) -> None:
    """Acknowledge a record while there should be no acknowledgement in partition 1."""
    acks: list[Ack] = []
    running = cast("Scenario", SimpleNamespace(load=SimpleNamespace(acks=acks)))
    sent_s = time.monotonic()
    async with no_acknowledgement(running, [1]):
        await asyncio.sleep(LEAST_SILENCE_S + 0.1)
        now_s = time.monotonic()
        sent_s = sent_s if sent_before else now_s
        acks.append(Ack(partition, 0, 0, 1, duplicate=False, at_s=now_s, sent_s=sent_s))
        await asyncio.sleep(0.01)


async def test_an_acknowledgement_that_must_not_be_is_found() -> None:
    await _acknowledge(2, sent_before=False)
    await _acknowledge(1, sent_before=True)
    with pytest.raises(AssertionError, match="acknowledged all the same"):
        await _acknowledge(1, sent_before=False)


async def test_a_silence_that_nobody_waited_for_is_void() -> None:
    running = cast("Scenario", SimpleNamespace(load=SimpleNamespace(acks=[])))
    with pytest.raises(AssertionError, match="void"):
        async with no_acknowledgement(running, [1]):
            pass
