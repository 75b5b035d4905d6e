"""Structured log lines: JSON for machines, or text for people.

Every line has the service, its id and the current cause id, and the trace and the span if the
process traces. Lines of libraries that use the
standard library's logging have the same form.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from leadline_common.cause import current_cause
from leadline_common.tracing import spans

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]

# What these libraries log at "info" is a detail here.
_VERBOSE_LOGGERS = ("aiohttp.access", "asyncio", "httpcore", "httpx", "kazoo", "uvicorn.error")


def configure_logging(
    service: str,
    service_id: int,
    *,
    level: Level = "info",
    form: Format = "json",
    stream: TextIO | None = None,
) -> None:
    """Write all log lines of this process to `stream`, by default standard error.

    `service` and `service_id` ("broker", 3) are on every line. A second call replaces the first
    configuration.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _ServiceAndCause(service, service_id),
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(form),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


def _rendering(form: Format) -> list[Processor]:
    if form == "console":
        # The plain formatter: the default one prints every local variable of every frame.
        plain = structlog.dev.plain_traceback
        return [
            structlog.dev.ConsoleRenderer(
                colors=False, timestamp_key="time", exception_formatter=plain
            )
        ]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


@dataclass(frozen=True, slots=True)
class _ServiceAndCause:
    """Adds the service, its id, the current cause id and the current span."""

    service: str
    service_id: int

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        del logger, method
        event["service"] = self.service
        event["id"] = self.service_id
        cause = current_cause()
        if cause:
            event.setdefault("cause", cause)
        span = spans.current()
        if span is not None:
            event["trace_id"], event["span_id"] = f"{span.trace_id:032x}", f"{span.span_id:016x}"
        return event
