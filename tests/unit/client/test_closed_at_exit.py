"""Producers that a handler of `atexit` closes: pools of threads take no work any more then."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from leadline_client.http_connections import _addresses
from leadline_client.stdlib_transport import StdlibTransport
from leadline_client.threaded_transport import ThreadedTransport
from leadline_client.transport import Request
from tests.unit.client.standin import StandInCluster

PROGRAM = """
import atexit, sys
sys.modules["httptools"] = None  # as without the extra `http`
from leadline_client import Producer, ProducerSettings
producer = Producer(sys.argv[1], ProducerSettings(linger_ms=60_000))
future = producer.send("t", b"last", partition=0)
atexit.register(lambda: print(future.result().offset))
atexit.register(producer.close)
"""


def test_a_producer_that_is_closed_at_the_end_of_the_process_sends_its_records(
    cluster: StandInCluster,
) -> None:
    command = [sys.executable, "-c", PROGRAM, cluster.bootstrap[0]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")
    assert cluster.values(0) == [b"last"]


async def test_requests_are_sent_without_threads_at_the_end(cluster: StandInCluster) -> None:
    transport = ThreadedTransport(StdlibTransport(), owned=True)
    transport._threads.shutdown()
    request = Request("GET", f"{cluster.bootstrap[0]}/v1/metadata")
    assert (await transport.send(request)).status == 200
    await transport.aclose()


async def test_names_are_resolved_without_threads_at_the_end() -> None:
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    loop.set_default_executor(threads)
    threads.shutdown()
    found = await _addresses(loop, "localhost", 80)
    assert {address[-1][1] for address in found} == {80}


async def test_a_request_for_which_no_thread_starts_is_not_sent_twice(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool has it in its queue, and may send it later."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    transport = ThreadedTransport(StdlibTransport(), owned=True)
    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        await transport.send(Request("GET", f"{cluster.bootstrap[0]}/v1/metadata"))
    assert not cluster.requests
    await transport.aclose()
