"""What a controller counts and measures."""

from __future__ import annotations

from collections.abc import Callable

from leadline_common.metrics import Metrics


class ControllerMetrics(Metrics):
    """The metrics of one controller process, active or standby."""

    def __init__(self) -> None:
        super().__init__()
        self.elections = self.counter(
            "controller_elections", "Leader elections written, by reason.", ("reason",)
        )
        self.commands = self.counter(
            "controller_commands", "Commands sent to brokers.", ("command", "outcome")
        )
        self.command_bytes = self.counter(
            "controller_command_bytes", "Bytes of the bodies of commands.", ("command",)
        )
        self.queue_seconds = self.histogram(
            "controller_event_queue_seconds", "How long events waited for the engine.", ("event",)
        )
        self.event_seconds = self.histogram(
            "controller_event_seconds", "How long the engine worked on an event.", ("event",)
        )
        self.failover_seconds = self.histogram(
            "controller_failover_seconds",
            "From the news of a broker's failure to the last acknowledgement of new roles.",
        )
        self.audit_stored = self.counter(
            "controller_audit_entries_stored", "Audit entries stored in this controller's history."
        )
        self.reassignment_steps = self.counter(
            "controller_reassignment_steps",
            "Actions written for reassigned partitions, by kind.",
            ("action",),
        )
        self.terms = self.counter("controller_terms", "Times that this process became active.")

    def watch(self, readings: dict[str, tuple[str, Callable[[], float]]]) -> None:
        """Register gauges that are read when someone looks: name to (meaning, reading)."""
        for name, (meaning, read) in readings.items():
            self.gauge_from(f"controller_{name}", meaning, read)
