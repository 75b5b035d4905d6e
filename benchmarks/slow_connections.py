"""2,000 silent and slow connections against one service: memory, health latency and their end.

Run `python benchmarks/slow_connections.py http://127.0.0.1:PORT PID` against a running service.
Prints the resident memory before and at most, the p99 of /healthz meanwhile, and how many of the
connections the service has closed in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx

CONNECTIONS = 2_000
WITHIN_S = 60.0
"""Longer than the head's timeout and two periods of the transfer rates."""

KINDS = (
    b"",
    b"GET /healthz HTTP/1.1\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 8_000,
    b"POST /v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000000\r\n\r\n" + b" " * 10_000,
)


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def hold(port: int, first: bytes) -> bool:
    """Open a connection, send a beginning, and return whether the service closed it in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(first)
        async with asyncio.timeout(WITHIN_S):
            await reader.read()
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    finally:
        writer.close()
    return True


async def measure(url: str, pid: int) -> None:
    """Run the load, and print the figures."""
    port = urlsplit(url).port
    assert port is not None
    before = most = resident_mib(pid)
    slow = [
        asyncio.create_task(hold(port, KINDS[number % len(KINDS)])) for number in range(CONNECTIONS)
    ]
    took: list[float] = []
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        while not all(task.done() for task in slow):
            began = time.perf_counter()
            (await client.get("/healthz")).raise_for_status()
            took.append((time.perf_counter() - began) * 1000)
            most = max(most, resident_mib(pid))
            await asyncio.sleep(0.05)
    closed = sum(await asyncio.gather(*slow))
    p99 = sorted(took)[int(len(took) * 0.99)]
    print(f"connections {CONNECTIONS}, closed by the service {closed}")
    print(f"resident memory {before:.0f} MiB before, {most:.0f} MiB at most")
    print(f"/healthz {len(took)} requests, p99 {p99:.1f} ms, max {max(took):.1f} ms")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("pid", type=int)
    options = parser.parse_args()
    asyncio.run(measure(options.url, options.pid))


if __name__ == "__main__":
    main()
