"""What the parts of services that a command uses log: only warnings, and on standard error."""

from __future__ import annotations

import sys
from typing import Final

import structlog
from structlog.typing import EventDict, WrappedLogger

_TOLD: Final = {"warning", "error", "critical", "exception"}


def warn_on_stderr() -> None:
    """Configure the log lines of this process, which otherwise would be among the results."""
    structlog.configure(
        processors=[
            _drop_details,
            structlog.stdlib.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, pad_level=False),
        ],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def _drop_details(_logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if method not in _TOLD:
        raise structlog.DropEvent
    return event
