"""Spans: what a process did for a request or an event, how long it took, and how it ended.

Without a tracer, which `tracing.exporting` sets, all of this does nothing, and OpenTelemetry is
not imported. Each span has the current cause id as the attribute `leadline.cause`.

`span` makes a child of the current span, and nothing where there is none, so that what a service
does by itself (heartbeats, replica fetches) makes no traces. A trace begins with a request of a
client (`server_span`) or an event of the controller (`root_span`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias

from leadline_common.cause import clear_cause
from leadline_common.tracing.traceparent import HEADER, TraceParent, written

Value: TypeAlias = str | bool | int | float | Sequence[str]
Attributes: TypeAlias = Mapping[str, Value]
Kind: TypeAlias = Literal["internal", "server", "client"]

NOTHING: Final[Attributes] = {}


class Span(Protocol):
    """A span; as a context manager it is the current one, and ends with the block.

    An exception that leaves the block is the span's error.
    """

    @property
    def is_recording(self) -> bool:
        """Whether anything that is set here will be seen."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes, or replace them."""

    def rename(self, name: str) -> None:
        """Give it another name."""

    def event(self, name: str, attributes: Attributes = NOTHING) -> None:
        """Add something that happened now."""

    def fail(self, error: str, message: str = "") -> None:
        """Note that it failed: the type or code of the error, and what it says."""

    def end(self) -> None:
        """End it now; for spans that are not used as context managers."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Tracer(Protocol):
    """Makes spans. The functions of this module have the same names, and say what each is."""

    def span(self, name: str, attributes: Attributes, kind: Kind) -> Span:
        """Return a child of the current span."""

    def root_span(self, name: str, attributes: Attributes) -> Span:
        """Return the first span of a new trace."""

    def span_under(
        self, parent: TraceParent, name: str, attributes: Attributes, began_ns: int | None
    ) -> Span:
        """Return a child of another task's span."""

    def server_span(self, headers: Iterable[tuple[bytes, bytes]], *, trusted: bool) -> Span:
        """Return the span of a request."""

    def current(self) -> TraceParent | None:
        """Return the current span, as another task or service may name it."""

    def current_span(self) -> Span:
        """Return the current span, to add to it."""

    def clear(self) -> None:
        """Leave the current context without a span."""


class NoSpan:
    """The span of a process that does not trace."""

    __slots__ = ()
    is_recording = False

    def set(self, attributes: Attributes) -> None:
        """Do nothing."""

    def rename(self, name: str) -> None:
        """Do nothing."""

    def event(self, name: str, attributes: Attributes = NOTHING) -> None:
        """Do nothing."""

    def fail(self, error: str, message: str = "") -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


NO_SPAN: Final = NoSpan()


class _Switch:
    """Holds the tracer of this process, None while nothing is traced."""

    __slots__ = ("tracer",)

    def __init__(self) -> None:
        self.tracer: Tracer | None = None


_switch: Final = _Switch()


def use_tracer(tracer: Tracer | None) -> None:
    """Make spans by this tracer from now on; None makes none."""
    _switch.tracer = tracer


def is_on() -> bool:
    """Tell whether this process traces; what only a span needs is computed only then."""
    return _switch.tracer is not None


def span(name: str, attributes: Attributes = NOTHING, kind: Kind = "internal") -> Span:
    """Return a child of the current span; nothing is recorded without one."""
    tracer = _switch.tracer
    return NO_SPAN if tracer is None else tracer.span(name, attributes, kind)


def root_span(name: str, attributes: Attributes = NOTHING) -> Span:
    """Return the first span of a new trace, recorded in the configured share of cases."""
    tracer = _switch.tracer
    return NO_SPAN if tracer is None else tracer.root_span(name, attributes)


def span_under(
    parent: TraceParent | None,
    name: str,
    attributes: Attributes = NOTHING,
    *,
    began_ns: int | None = None,
) -> Span:
    """Return a child of a span that `current` has named, possibly in another task.

    `began_ns` is when it began, in ns since 1970, if that was before now. Nothing is recorded
    without a parent.
    """
    tracer = _switch.tracer
    if tracer is None or parent is None:
        return NO_SPAN
    return tracer.span_under(parent, name, attributes, began_ns)


def server_span(headers: Iterable[tuple[bytes, bytes]], *, trusted: bool) -> Span:
    """Return the span of a request; `headers` have lower-case names.

    A `trusted` caller, another service, decides whether it is recorded, and a request of it
    without a parent is not. For any other caller the configured share decides: it may name the
    trace that the request belongs to, and may ask for no recording.
    """
    tracer = _switch.tracer
    return NO_SPAN if tracer is None else tracer.server_span(headers, trusted=trusted)


def current() -> TraceParent | None:
    """Return the current span, for `span_under` in another task; None if there is none."""
    tracer = _switch.tracer
    return None if tracer is None else tracer.current()


def current_span() -> Span:
    """Return the current span, to add to it."""
    tracer = _switch.tracer
    return NO_SPAN if tracer is None else tracer.current_span()


def background_context() -> Context:
    """Return a copy of the context for a task that outlives the request or event that begins it.

    What the task does later is not part of that: it has neither its cause nor its trace.
    """
    found = copy_context()
    found.run(clear_cause)
    tracer = _switch.tracer
    if tracer is not None:
        found.run(tracer.clear)
    return found


def propagation() -> dict[str, str]:
    """Return the headers that make a request to another service part of the current trace."""
    parent = current()
    return {} if parent is None else {HEADER: written(parent)}
