"""Client logic that does no IO of its own: flows and the loops that drive them.

A flow is a generator. It yields requests to be sent and pauses to be made, and
is sent the responses; a transport's failure is thrown into it. So one flow
serves the blocking and the asynchronous client, and a test drives it by hand.
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
class Pause:
    """Wait for so many seconds before the flow goes on."""

    seconds: float


Step: TypeAlias = Request | Pause
Flow: TypeAlias = Generator[Step, Response | None, T]


def exchange(request: Request) -> Flow[Response]:
    """Have `request` sent and return its response."""
    response = yield request
    if response is None:
        raise TypeError("the driver of a flow must answer a request with a response")
    return response


def pause(seconds: float) -> Flow[None]:
    """Have the driver wait."""
    yield Pause(seconds)


def drive(flow: Flow[T], transport: Transport, sleep: Callable[[float], None]) -> T:
    """Run `flow` to its end, blocking."""
    resume: Callable[[], Step] = partial(flow.send, None)
    while True:
        try:
            step = resume()
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Pause):
            sleep(step.seconds)
            resume = partial(flow.send, None)
            continue
        try:
            resume = partial(flow.send, transport.send(step))
        except LeadlineError as failure:
            resume = partial(flow.throw, failure)


async def drive_async(
    flow: Flow[T], transport: AsyncTransport, sleep: Callable[[float], Awaitable[None]]
) -> T:
    """Run `flow` to its end on the running event loop; a cancelled caller ends it."""
    resume: Callable[[], Step] = partial(flow.send, None)
    while True:
        try:
            step = resume()
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Pause):
            await sleep(step.seconds)
            resume = partial(flow.send, None)
            continue
        try:
            resume = partial(flow.send, await transport.send(step))
        except LeadlineError as failure:
            resume = partial(flow.throw, failure)
