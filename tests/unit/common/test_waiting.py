"""Waits that a caller asked for are no latency."""

import asyncio

from httpx import ASGITransport, AsyncClient

from leadline_common.http.app import create_app
from leadline_common.metrics import Metrics
from leadline_common.waiting import CountedWait, waits_measured
from tests.unit.common.http_app import anybody

ROUTE = '{method="GET",route="/poll"}'


def value(metrics: Metrics, sample: str) -> float:
    """Return the value of a sample, written as it is served."""
    lines = metrics.render().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{sample} "))


async def test_the_latency_of_a_long_poll_is_without_its_wait() -> None:
    metrics = Metrics(process=False)
    app = create_app(title="t", version="0", description="", metrics=metrics, need_of=anybody)

    @app.get("/poll")
    async def poll() -> str:
        with CountedWait():
            await asyncio.sleep(0.25)
        return "nothing new"

    @app.get("/work")
    async def work() -> str:
        return "done"

    async with AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as client:
        began = asyncio.get_running_loop().time()
        await client.get("/poll")
        elapsed = asyncio.get_running_loop().time() - began
        await client.get("/work")

    waited = value(metrics, f"leadline_http_wait_seconds_sum{ROUTE}")
    latency = value(metrics, f"leadline_http_request_seconds_sum{ROUTE}")
    assert waited >= 0.2
    # Were the wait counted as latency too, both together would exceed what the request took.
    assert waited + latency <= elapsed + 1e-3
    assert 'leadline_http_wait_seconds_count{method="GET",route="/work"}' not in (
        metrics.render().decode()
    )


async def test_waits_at_the_same_time_count_once() -> None:
    async def wait() -> None:
        with CountedWait():
            await asyncio.sleep(0.05)

    loop = asyncio.get_running_loop()
    with waits_measured() as waits:
        began = loop.time()
        await asyncio.gather(wait(), wait())
        elapsed = loop.time() - began

    assert waits.has_waited
    # Counted twice they would be almost twice what both took together.
    assert 0 < waits.seconds <= elapsed + 1e-3


def test_what_was_not_asked_for_is_not_counted() -> None:
    with waits_measured() as waits, CountedWait(asked=False):
        pass

    assert not waits.has_waited


def test_a_wait_outside_a_request_is_no_error() -> None:
    with CountedWait():
        pass
