"""Requests that a service forwards to another one, over the simulated network.

It is what `Forwarder` asks of aiohttp: standby coordinators forward to the active one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

import aiohttp
import pytest

from leadline_common.http.forward import Forwarder, OutgoingRequest
from leadline_common.identity import ServiceAddress
from tests.runtime_simulation.network import host_of
from tests.runtime_simulation.web import NoAnswer, NotReached, Web, WebAnswer, WebRequest

_CONNECT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ForwardedAnswer:
    """An answer as `aiohttp.ClientResponse` has it, as far as a forwarder looks at it."""

    answer: WebAnswer

    @property
    def status(self) -> int:
        """The status."""
        return self.answer.status

    @property
    def headers(self) -> dict[str, str]:
        """The headers."""
        return self.answer.headers

    @property
    def content_type(self) -> str:
        """The media type."""
        return self.answer.headers.get("content-type", "").partition(";")[0]

    async def read(self) -> bytes:
        """Return the body."""
        return self.answer.body

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: no connection is kept."""


@contextmanager
def in_force(web: Web) -> Iterator[None]:
    """Let services forward over the simulated network within the block."""

    async def send(
        _: Forwarder, outgoing: OutgoingRequest, to: ServiceAddress, timeout_s: float
    ) -> ForwardedAnswer:
        request = WebRequest(
            outgoing.method, outgoing.target, tuple(outgoing.headers), outgoing.body
        )
        try:
            answer = await web.exchange(
                host_of(to.url), request, connect_s=_CONNECT_S, timeout_s=timeout_s
            )
        except NotReached as failure:
            raise aiohttp.ConnectionTimeoutError(str(failure)) from failure
        except NoAnswer as failure:
            raise TimeoutError(str(failure)) from failure
        return ForwardedAnswer(answer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forwarder, "_send", send)
        yield
