"""Rolling restarts: one service after another, each only when the cluster can spare it.

Coordinators come first, then brokers, then controllers, the active one at the end: while brokers
restart, the controller that moves their leaders stays the same, and it changes only once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leadline_cli.cluster_file import ClusterFile
from leadline_client.errors import LeadlineError
from leadline_client.wire import Metadata
from leadline_common.identity import Kind

if TYPE_CHECKING:
    from leadline_client.client import Client

_ORDER: Final[tuple[Kind, ...]] = ("coordinator", "broker", "controller")
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """A service to restart."""

    kind: Kind
    id: int
    url: str

    @property
    def name(self) -> str:
        """Its name, such as `broker-1`."""
        return f"{self.kind}-{self.id}"


class RollStopped(RuntimeError):
    """A rolling restart ended early; the message says at which service and why.

    With `unknown`, that service was told to restart, and did not return in time.
    """

    def __init__(self, target: Target, reason: str, *, unknown: bool) -> None:
        super().__init__(f"{target.name}: {reason}")
        self.unknown = unknown


def targets_of(cluster: ClusterFile) -> list[Target]:
    """Return the services of a cluster.json, without ZooKeeper."""
    rows: list[tuple[Kind, tuple[int, str]]] = [
        *(("controller", (row.id, row.url)) for row in cluster.controllers),
        *(("broker", (row.id, row.url)) for row in cluster.brokers),
        *(("coordinator", (row.id, row.url)) for row in cluster.coordinators),
    ]
    return [Target(kind, *identity) for kind, identity in rows]


def roll_order(
    targets: Iterable[Target],
    active_controller: int | None,
    *,
    only: Kind | None = None,
    skip: Collection[str] = (),
) -> list[Target]:
    """Return the services in the order of their restarts, without those named in `skip`."""
    wanted = [one for one in targets if only in (None, one.kind) and one.name not in skip]

    def place(one: Target) -> tuple[int, bool, int]:
        active = one.kind == "controller" and one.id == active_controller
        return _ORDER.index(one.kind), active, one.id

    return sorted(wanted, key=place)


def not_back(metadata: Metadata, broker: int, incarnation: int) -> str:
    """Return what a restarted broker lacks: its new registration, or ISRs; "" if nothing.

    `incarnation` is that of before the restart, -1 if it was not registered.
    """
    row = metadata.brokers.get(broker)
    if row is None or row.incarnation <= incarnation:
        return "has not registered again"
    outside = [
        f"{topic.name}-{partition.partition}"
        for topic in metadata.topics.values()
        for partition in topic.partitions
        if broker in partition.replicas and broker not in partition.isr
    ]
    return f"is not in the ISR of {', '.join(outside[:5])}" if outside else ""


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """Restarts services by `restart`, which returns once the service's process runs again.

    `restart` raises RuntimeError if it could not restart, and TimeoutError if nobody knows.
    `is_ready` asks a service. Each wait ends after `deadline_s` seconds.
    """

    client: Client
    restart: Callable[[Target], None]
    is_ready: Callable[[Target], bool]
    deadline_s: float

    def roll(self, target: Target) -> None:
        """Wait until a service may stop, restart it, and wait until it is back.

        Raises:
            RollStopped: it must not stop, or did not return.

        """
        incarnation = -1
        if target.kind == "broker":
            incarnation = self._until_it_may_stop(target)
        try:
            self.restart(target)
        except (RuntimeError, TimeoutError) as problem:
            raise RollStopped(target, str(problem), unknown=True) from problem
        self._wait(target, lambda: self._why_not_back(target, incarnation), unknown=True)

    def _until_it_may_stop(self, target: Target) -> int:
        """Wait until a broker may stop; return its incarnation, -1 if it is down."""
        incarnation = -1

        def why_not() -> str:
            nonlocal incarnation
            row = self.client.metadata().brokers.get(target.id)
            incarnation = row.incarnation if row else -1
            return self._why_not_stop(target.id) if row else ""  # A start is what it needs.

        self._wait(target, why_not, unknown=False)
        return incarnation

    def _why_not_stop(self, broker: int) -> str:
        found = self.client.administer("GET", f"/v1/brokers/{broker}/can-stop")
        reasons = ", ".join(f"{row['reason']} ({row['total']})" for row in found["reasons"])
        return "" if found["can_stop"] else f"should not stop now: {reasons}"

    def _why_not_back(self, target: Target, incarnation: int) -> str:
        if not self.is_ready(target):
            return "is not ready"
        if target.kind != "broker":
            return ""
        return not_back(self.client.metadata(), target.id, incarnation)

    def _wait(self, target: Target, problem: Callable[[], str], *, unknown: bool) -> None:
        """Wait until `problem()` is empty, which may fail meanwhile."""
        give_up = time.monotonic() + self.deadline_s
        while True:
            try:
                found = problem()
            except LeadlineError as error:
                found = error.message
            if not found:
                return
            if time.monotonic() > give_up:
                raise RollStopped(target, found, unknown=unknown)
            time.sleep(_POLL_S)
