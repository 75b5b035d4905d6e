"""Flows, which hold client logic without IO, and the loops that run them.

A flow is a generator. It yields requests to send and delays to wait for, and
receives the responses; a transport's failure is raised in it. One flow serves
both the blocking and the asynchronous client, and a test can step through it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from leadline_client.errors import LeadlineError
from leadline_client.transport import AsyncTransport, Request, Response, Transport

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delay:
    """A wait before the flow goes on."""

    seconds: float


Step: TypeAlias = Request | Delay
Flow: TypeAlias = Generator[Step, Response | None, T]


def exchange(request: Request) -> Flow[Response]:
    """Send `request` and return its response."""
    response = yield request
    if response is None:
        raise TypeError("a request of a flow must be answered with a response")
    return response


def delay(seconds: float) -> Flow[None]:
    """Wait for `seconds`."""
    yield Delay(seconds)


def drive(
    flow: Flow[T], transport: Transport, sleep: Callable[[float], None], check: Callable[[], None]
) -> T:
    """Run `flow` to its end, and block meanwhile.

    `check` is called before each request. What it raises is raised in the flow, and nothing is
    sent.
    """
    resume: Callable[[], Step] = partial(flow.send, None)
    while True:
        try:
            step = resume()
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Delay):
            sleep(step.seconds)
            resume = partial(flow.send, None)
            continue
        try:
            check()
            resume = partial(flow.send, transport.send(step))
        except LeadlineError as failure:
            resume = partial(flow.throw, failure)


async def drive_async(
    flow: Flow[T],
    transport: AsyncTransport,
    sleep: Callable[[float], Awaitable[None]],
    check: Callable[[], None],
) -> T:
    """Run `flow` to its end on the running event loop; cancelling the caller cancels it.

    For `check` see `drive`.
    """
    resume: Callable[[], Step] = partial(flow.send, None)
    while True:
        try:
            step = resume()
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Delay):
            await sleep(step.seconds)
            resume = partial(flow.send, None)
            continue
        try:
            check()
            resume = partial(flow.send, await transport.send(step))
        except LeadlineError as failure:
            resume = partial(flow.throw, failure)
