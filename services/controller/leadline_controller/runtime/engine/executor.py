"""Handling one event after another, so that no fault of a handler ends the term.

The term ends only if this controller may not act any more: another one was elected
(R11), the lease has run out (R10), or the session is over. Any other exception is the
fault of one event: its caller gets an error, and the queue goes on. If the handler had
written something by then, the image may lack it, so everything is read again (R7, R8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from leadline_client.errors import (
    InternalError,
    LeadlineError,
    NoController,
    Refused,
    StoreOutcomeUnknown,
)
from leadline_common.access.caller import caller_scope
from leadline_common.cause import cause_scope
from leadline_common.clock import Clock
from leadline_common.leader_election import TermEnded
from leadline_common.tracing import spans
from leadline_common.zk.errors import ConnectionLoss, SessionExpired
from leadline_controller.runtime.engine.event_queue import EventQueue
from leadline_controller.runtime.engine.events import (
    AnyEvent,
    BrokersChanged,
    ControllerRequest,
    DryRunRequest,
    QueuedEvent,
    Reconcile,
    Trigger,
)
from leadline_controller.runtime.engine.guard import Condition, Guard
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.engine.refusals import RefusalAudit
from leadline_controller.runtime.engine.state_writer import StaleImage, StateWriter
from leadline_controller.runtime.engine.tracing import event_span

logger = structlog.get_logger(__name__)

_DONE = "the request was interrupted: check its outcome before repeating it"
_NO_LEADERSHIP = "this controller lost its leadership meanwhile"
_NO_CONNECTION = "this controller has no connection to ZooKeeper"
_NOTHING_DONE = "the controller failed to handle this request, and has changed nothing; see its log"


@dataclass(eq=False)
class EventExecutor:
    """Calls the handler of each event; `check_condition` raises if a guard's does not hold."""

    handlers: Mapping[type[AnyEvent], Callable[..., Awaitable[None]]]
    queue: EventQueue
    writer: StateWriter
    refusals: RefusalAudit
    clock: Clock
    metrics: ControllerMetrics
    check_condition: Callable[[Condition], None]

    async def handle(self, queued: QueuedEvent) -> None:
        """Handle an event, and call what is due after it.

        Raises:
            TermEnded, SessionExpired: the term is over.

        """
        begun_ms = self.clock.monotonic_ms()
        name = type(queued.event).__name__
        self.metrics.queue_seconds.labels(name).observe((begun_ms - queued.at_ms) / 1000)
        waited_ms = begun_ms - queued.at_ms
        with (
            cause_scope(queued.cause),
            caller_scope(queued.caller),
            event_span(name, queued.span, waited_ms) as span,
        ):
            await self._handle(queued, span)
            for fault in self.queue.run_after_event():
                self._count(name, "what is due after an event failed", fault)
        self.metrics.event_seconds.labels(name).observe(
            (self.clock.monotonic_ms() - begun_ms) / 1000
        )

    async def _handle(self, queued: QueuedEvent, span: spans.Span) -> None:
        event, sent_before = queued.event, self.writer.sent
        try:
            with self._guarded(queued):
                await self._call_handler(queued)
            if isinstance(event, DryRunRequest) and event.dry_run:
                await self.refusals.record(event, "dry_run")
        except (TermEnded, SessionExpired, asyncio.CancelledError):
            _interrupt(queued, _NO_LEADERSHIP, has_written=self.writer.has_sent_since(sent_before))
            raise
        except LeadlineError as refusal:
            span.fail(type(refusal).__name__, refusal.message)
            queued.refuse(refusal)
            if not isinstance(event, ControllerRequest):
                logger.error("event not handled", type=type(event).__name__, error=refusal.message)
            elif isinstance(refusal, Refused):
                await self.refusals.record(event, "refused", str(refusal), refusal.code)
        except Exception as error:
            span.fail(type(error).__name__, str(error))
            self._on_fault(queued, error, has_written=self.writer.has_sent_since(sent_before))

    async def _call_handler(self, queued: QueuedEvent) -> None:
        handle = self.handlers[type(queued.event)]
        if queued.reply is not None:
            await handle(queued.event, queued.reply)
        elif isinstance(queued.event, Trigger):
            await handle()
        else:
            await handle(queued.event)

    @contextmanager
    def _guarded(self, queued: QueuedEvent) -> Iterator[None]:
        """Check the guard of a request, and let every write of its handler carry the mark.

        The condition is checked once for each guard: the request's own first change may
        invalidate it.

        Raises:
            NoController, StoreOutcomeUnknown: the request was begun in an earlier term.
            StaleVersion: the condition does not hold.

        """
        guard = queued.guard
        if guard is not None:
            self._check_guard(guard)
        self.writer.guard = guard
        try:
            yield
        finally:
            self.writer.guard = None

    def _check_guard(self, guard: Guard) -> None:
        if guard.mark is not None and guard.mark.epoch != self.writer.term.epoch:
            refusal = StoreOutcomeUnknown if guard.marked else NoController
            raise refusal("this controller lost its leadership, and was elected again")
        if guard.condition is not None and not guard.checked:
            self.check_condition(guard.condition)
            guard.checked = True

    def _on_fault(self, queued: QueuedEvent, error: Exception, *, has_written: bool) -> None:
        """Leave the rest to the reconciliation: what was written has an unknown outcome (R7).

        A bug in one handler does not end the term: the next controller would have it too.
        """
        name = type(queued.event).__name__
        match error:
            case ConnectionLoss():
                _interrupt(queued, _NO_CONNECTION, has_written=has_written)
                logger.warning("event interrupted: no connection to ZooKeeper", type=name)
                if self.writer.store.is_connected():  # Else the reconnection triggers it.
                    self.queue.trigger(Reconcile)
            case StaleImage():
                queued.refuse(StoreOutcomeUnknown(_DONE))
                logger.info("broker has changed; reading again", type=name, path=str(error))
                self.queue.trigger(BrokersChanged)
                self.queue.trigger(Reconcile)
            case _ if has_written:
                queued.refuse(StoreOutcomeUnknown(_DONE))
                self._count(name, "event handler failed after a write", error)
                if not isinstance(queued.event, Reconcile):  # it would fail again, without a pause
                    self.queue.trigger(Reconcile)
            case _:
                queued.refuse(InternalError(_NOTHING_DONE))
                self._count(name, "event handler failed", error)

    def _count(self, name: str, what: str, error: BaseException) -> None:
        self.metrics.event_faults.labels(name).inc()
        logger.error(what, type=name, exc_info=error)


def _interrupt(queued: QueuedEvent, reason: str, *, has_written: bool) -> None:
    """Refuse a request whose handler could not go on; its outcome is unknown if it has written."""
    if has_written:
        queued.refuse(StoreOutcomeUnknown(f"{reason}: {_DONE}"))
    else:
        queued.refuse(NoController(f"{reason}: the request has changed nothing"))


async def isolated(
    work: Awaitable[object], what: str, owner: object, metrics: ControllerMetrics
) -> None:
    """Await one part of a larger piece of work, and let its fault not stop the other parts.

    Raises:
        TermEnded, SessionExpired, ConnectionLoss, StaleImage: these concern all parts.

    """
    try:
        await work
    except (TermEnded, SessionExpired, ConnectionLoss, StaleImage):
        raise
    except Exception as error:
        name = type(owner).__name__
        metrics.event_faults.labels(name).inc()
        logger.error(what, part=name, exc_info=error)
