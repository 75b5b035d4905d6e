"""Spans of a client's operations and requests, if its program uses OpenTelemetry.

The program decides: it has set a tracer provider, or a span is current. Then each operation is a
span, each request of it is a child, and the request carries the trace to the cluster. Otherwise
nothing is imported, and nothing happens. OpenTelemetry is no dependency of this package.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from leadline_client.errors import LeadlineError
from leadline_client.transport import AsyncTransport, Request, Response, Transport

if TYPE_CHECKING:
    from opentelemetry.trace import Span

CAUSE_HEADER: Final = "x-leadline-cause"
_API: Final = "opentelemetry.trace"
_SCOPE: Final = "leadline-client"


def _api() -> ModuleType | None:
    """Return OpenTelemetry's API if the program uses it, which it then has imported."""
    api: Any = sys.modules.get(_API)
    if api is None:
        return None
    if api.get_current_span().get_span_context().is_valid:
        return api  # type: ignore[no-any-return]  # a module that is imported nowhere here
    unset = isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)
    return None if unset else api


def operation_span(name: str) -> AbstractContextManager[object]:
    """Return the span of one operation of a client, such as `create_topic`."""
    api: Any = _api()
    if api is None:
        return nullcontext()
    return _span(api, f"leadline {name}")


@contextmanager
def _span(api: Any, name: str, **more: Any) -> Iterator[Span]:
    """Give a span that is the current one within the block."""
    with api.get_tracer(_SCOPE).start_as_current_span(name, _parent(api), **more) as span:
        try:
            yield span
        except asyncio.CancelledError:  # which OpenTelemetry does not take for an error
            span.set_attribute("error.type", "cancelled")
            span.set_status(api.StatusCode.ERROR)
            raise


def _parent(api: Any) -> Any:
    """Return the context of a new span: an empty one if the current span has ended.

    The tasks of producers and consumers outlive the call that began them: what they do later is no
    part of its trace.
    """
    span = api.get_current_span()
    if span.is_recording() or isinstance(span, api.NonRecordingSpan):
        return None  # the current context
    return import_module("opentelemetry.context").Context()


def traced(transport: Transport) -> Transport:
    """Return a transport that records its requests, the same one if the program does not trace."""
    return transport if _api() is None else _TracedTransport(transport)


def traced_async(transport: AsyncTransport) -> AsyncTransport:
    """Return a transport that records its requests, the same one if the program does not trace."""
    return transport if _api() is None else _TracedAsyncTransport(transport)


class _RequestSpan:
    """The span of one request; `request` is what to send, with the headers of the trace."""

    def __init__(self, request: Request) -> None:
        api: Any = sys.modules[_API]
        parts = urlsplit(request.url)
        self._error = api.StatusCode.ERROR
        self._current: AbstractContextManager[Span] = _span(
            api,
            request.method,
            kind=api.SpanKind.CLIENT,
            attributes={
                "http.request.method": request.method,
                "server.address": parts.hostname or "",
                "server.port": parts.port or 0,
                "url.full": request.url,
            },
        )
        self._plain = request

    def __enter__(self) -> Self:
        self._span = self._current.__enter__()
        headers = dict(self._plain.headers)
        propagate: Any = import_module("opentelemetry.propagate")
        propagate.inject(headers)
        self.request = replace(self._plain, headers=headers)
        return self

    def answered(self, response: Response) -> Response:
        """Add what the response says, and return it."""
        self._span.set_attribute("http.response.status_code", response.status)
        if cause := response.headers.get(CAUSE_HEADER):
            self._span.set_attribute("leadline.cause", cause)
        if response.status >= 400:
            self._span.set_attribute("error.type", str(response.status))
            self._span.set_status(self._error)
        return response

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, LeadlineError):
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_attribute("leadline.outcome", error.outcome)
        self._current.__exit__(kind, error, trace)


@dataclass(frozen=True, slots=True)
class _TracedTransport:
    transport: Transport

    def send(self, request: Request) -> Response:
        """Return the response; raises as `Transport.send` does."""
        with _RequestSpan(request) as span:
            return span.answered(self.transport.send(span.request))

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()


@dataclass(frozen=True, slots=True)
class _TracedAsyncTransport:
    transport: AsyncTransport

    async def send(self, request: Request) -> Response:
        """Return the response; raises as `Transport.send` does."""
        with _RequestSpan(request) as span:
            return span.answered(await self.transport.send(span.request))

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()
