"""Segments of a broker that cannot be read for a while: its disk answers EIO."""

from __future__ import annotations

from random import Random
from typing import Final

from leadline_broker.adapters.log.layout import LOG_SUFFIX
from leadline_client.errors import BrokerFenced
from tests.runtime_simulation.plan import Fault
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.service_faults import ServiceFaults
from tests.runtime_simulation.services import BrokerService
from tests.runtime_simulation.world import World

REFUSED: Final = "a read of a segment failed"


class ReadingFaults:
    """Lets one broker at a time not read segments: all, those of one replica, or one."""

    def __init__(self, world: World, services: ServiceFaults) -> None:
        self._world = world
        self._services = services
        self._broken: tuple[BrokerService, Process | None] | None = None

    def begin(self, broker: BrokerService, fault: Fault) -> None:
        """Let a broker not read segments for a while, and by choice start it again meanwhile."""
        if self._broken is not None:
            return
        random = Random(fault.choice)
        root = broker.disk.root
        segments = sorted(path for path in root.rglob(f"*{LOG_SUFFIX}"))
        segment = random.choice(segments) if segments else root
        chosen = random.choice((root, segment.parent, segment, segment))
        broker.disk.unreadable = str(chosen)
        broker.disk.refused_reads = 0
        broker.disk.unreadable_share = random.choice((1.0, 1.0, 0.5))
        if random.random() < 0.4:
            self._services.kill(broker, Fault(0.0, "kill", 0, random.uniform(0.02, fault.for_s)))
        self._broken = broker, _process_with_logs(broker)
        self._services.later(fault.for_s, self.end)

    def end(self) -> None:
        """Let all be read again. A broker that has opened its logs meanwhile is started again.

        What it could not read when it was started it does not try to read any more.
        """
        if self._broken is None:
            return
        (broker, process), self._broken = self._broken, None
        broker.disk.unreadable = ""
        if broker.disk.refused_reads:
            self._world.reached(REFUSED)
        if broker.process is not process or not broker.running:
            broker.kill()
            broker.start()


def _process_with_logs(broker: BrokerService) -> Process | None:
    """Return a broker's process if it has opened its logs, as far as it could."""
    try:
        has_logs = broker.broker is not None and bool(broker.broker.engine)
    except BrokerFenced:
        has_logs = False
    return broker.process if has_logs else None
