"""An OpenTelemetry collector for tests: it keeps the spans that it gets over OTLP/HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from aiohttp import web

# The messages of protobuf have no types.
_messages: Any = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

_ERROR = 2


@dataclass(frozen=True)
class CollectedSpan:
    """One span as a collector gets it; times are ns since 1970."""

    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    begin_ns: int
    end_ns: int
    is_error: bool
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def cause(self) -> str:
        """The cause id."""
        cause: str = self.attributes.get("leadline.cause", "")
        return cause


@dataclass
class Collector:
    """The spans so far; `status` is what it answers."""

    url: str = ""
    status: int = 200
    spans: list[CollectedSpan] = field(default_factory=list)
    requests: int = 0
    _runner: web.AppRunner | None = None

    def of_trace(self, trace_id: str) -> list[CollectedSpan]:
        """Return the spans of one trace, by their beginning."""
        found = [span for span in self.spans if span.trace_id == trace_id]
        return sorted(found, key=lambda span: span.begin_ns)

    def named(self, name: str) -> list[CollectedSpan]:
        """Return the spans with a name."""
        return [span for span in self.spans if span.name == name]

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/traces", self.receive)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop to listen, and end all connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def receive(self, request: web.Request) -> web.Response:
        """Take the spans of one request."""
        self.requests += 1
        if self.status == 200:
            message = _messages.ExportTraceServiceRequest.FromString(await request.read())
            self.spans.extend(_spans_of(message))
        return web.Response(status=self.status)


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Run a collector on a free port of 127.0.0.1."""
    collector = Collector()
    await collector.start()
    try:
        yield collector
    finally:
        await collector.stop()


def rendered(spans: Iterable[CollectedSpan]) -> str:
    """Return a trace as indented lines: duration, service and name of each span, and its events."""
    found = sorted(spans, key=lambda span: span.begin_ns)
    known = {span.span_id for span in found}
    lines: list[str] = []

    def add(span: CollectedSpan, depth: int) -> None:
        ms = (span.end_ns - span.begin_ns) / 1e6
        events = "".join(f" [{name} {_short(what)}]" for name, what in span.events)
        lines.append(f"{ms:7.1f} ms  {span.service:13}  {'  ' * depth}{span.name}{events}")
        for child in found:
            if child.parent_id == span.span_id:
                add(child, depth + 1)

    for span in found:
        if span.parent_id not in known:
            add(span, 0)
    return "\n".join(lines)


def _short(attributes: dict[str, Any]) -> str:
    return ", ".join(f"{name.removeprefix('leadline.')} {v}" for name, v in attributes.items())


def _spans_of(message: Any) -> Iterator[CollectedSpan]:
    for resource in message.resource_spans:
        about = _values(resource.resource.attributes)
        service = about.get("service.instance.id", about.get("service.name", ""))
        if "service.namespace" not in about:
            service = about["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _span_of(span, service)


def _span_of(span: Any, service: str) -> CollectedSpan:
    return CollectedSpan(
        name=span.name,
        service=service,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        begin_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        is_error=span.status.code == _ERROR,
        attributes=_values(span.attributes),
        events=tuple((event.name, _values(event.attributes)) for event in span.events),
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
