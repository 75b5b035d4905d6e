"""The metrics of a controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from leadline_common.elections import ElectionReason
from leadline_common.metrics import Metrics
from leadline_controller.domain.failover import StateDecision

_COUNTED: Final = frozenset(ElectionReason) - {ElectionReason.UNCHANGED}


class ControllerMetrics(Metrics):
    """The metrics of one controller process, active or standby."""

    def __init__(self) -> None:
        super().__init__()
        self.elections = self.counter(
            "controller_elections",
            "Leader elections written, by reason; with `none` and `directory_replaced`, nobody "
            "could lead.",
            ("reason",),
        )
        for reason in sorted(_COUNTED):
            # From 0 on: the increase of a counter that appears with its first event is not seen.
            self.elections.labels(reason.value)
        self.commands = self.counter(
            "controller_commands", "Requests sent to brokers.", ("command", "outcome")
        )
        self.command_bytes = self.counter(
            "controller_command_bytes",
            "Bytes of the bodies of requests sent to brokers.",
            ("command",),
        )
        self.queue_seconds = self.histogram(
            "controller_event_queue_seconds", "Time that events waited in the queue.", ("event",)
        )
        self.event_seconds = self.histogram(
            "controller_event_seconds", "Time spent handling an event.", ("event",)
        )
        self.event_faults = self.counter(
            "controller_event_faults",
            "Events, or parts of a reconciliation, that failed unexpectedly; the log has each.",
            ("event",),
        )
        self.failover_seconds = self.histogram(
            "controller_failover_seconds",
            "From a broker change to the last acknowledgement of new roles.",
        )
        self.audit_stored = self.counter(
            "controller_audit_entries_stored", "Audit entries stored in this controller's history."
        )
        self.reassignment_steps = self.counter(
            "controller_reassignment_steps",
            "Reassignment actions written, by kind.",
            ("action",),
        )
        self.terms = self.counter("controller_terms", "Leadership terms won by this process.")

    def count_elections(self, written: Iterable[StateDecision]) -> None:
        """Count elections among written decisions; a leader that leads on was not elected."""
        # One increment for each reason: ten thousand of them cost as much as the decisions.
        for reason, number in Counter(decision.reason for decision in written).items():
            if reason in _COUNTED:
                self.elections.labels(reason.value).inc(number)

    def watch(self, readings: dict[str, tuple[str, Callable[[], float]]]) -> None:
        """Register gauges that are read at each scrape: name to (help text, reading)."""
        for name, (help_text, read) in readings.items():
            self.gauge_from(f"controller_{name}", help_text, read)
