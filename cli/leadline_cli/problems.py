"""The problems that `leadline doctor` finds, each with a section of its own in docs/runbooks.md."""

from __future__ import annotations

from enum import StrEnum


class Problem(StrEnum):
    """The id of a problem: stable, for scripts, and the anchor of its section.

    What an alert reports too has the alert's section.
    """

    NO_JAVA = "no-java"
    DISK_NEARLY_FULL = "disk-nearly-full"
    NO_CLUSTER_FOUND = "no-cluster-found"
    ZOOKEEPER_DOWN = "zookeeper-down"
    REQUESTS_REFUSED = "requests-refused"
    NO_BROKER_ANSWERS = "no-broker-answers"
    BROKER_DOES_NOT_ANSWER = "broker-does-not-answer"
    BROKER_NOT_READY = "broker-not-ready"
    BROKER_REPORTS_PROBLEMS = "broker-reports-problems"
    CLOCK_OFF = "clock-off"
    CONTROLLER_REPORTS_PROBLEMS = "controller-reports-problems"
    COORDINATOR_REPORTS_PROBLEMS = "coordinator-reports-problems"
    NO_ACTIVE_CONTROLLER = "no-active-controller"
    NO_ACTIVE_COORDINATOR = "no-active-coordinator"
    BROKER_FAILED = "broker-failed"
    TWO_RELEASES = "two-releases"
    INCOMPATIBLE_RELEASES = "incompatible-releases"
    LOG_DIRECTORY_REPLACED = "log-directory-replaced"
    OFFLINE_PARTITIONS = "offline-partitions"
    UNDER_REPLICATED_PARTITIONS = "under-replicated-partitions"

    @property
    def runbook(self) -> str:
        """The section that says what to do, as a path within the repository and an anchor."""
        return f"docs/runbooks.md#{self.value}"
