"""Which brokers have failed or returned since that was last recorded (KIP-46, part 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from leadline_controller.domain.cluster import BrokerUp, Change, ClusterImage
from leadline_controller.domain.healing import Covered, diff_failures
from leadline_controller.runtime.reassignment.failure_records import FailureRecords


@dataclass(eq=False)
class FailureDetector:
    """Follows the registrations of brokers, and records failures and returns.

    A broker that registers and is gone again before `record` has both returned and failed.
    """

    records: FailureRecords
    image: ClusterImage
    _incarnations: dict[int, int] = field(init=False)
    _returned: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._incarnations = self._live()
        self.image.subscribe(self._on_image_changed)

    async def record(self, covered: Covered) -> None:
        """Record failed and returned brokers (KIP-46, onBrokerFailure); see `diff_failures`.

        Raises MultiFailed if ZooKeeper differs; what is not recorded yet is recorded next time.
        """
        records, returned = self.records, frozenset(self._returned)
        seen = self._incarnations.keys() | (records.unrecorded - records.dead.keys())
        recorded = records.failed.keys() | records.dead.keys()
        diff = diff_failures(self.image, records.failed, recorded, seen, returned, covered)
        for broker in diff.returned:
            await records.record_return(broker)
            self._returned.discard(broker)
        for broker in diff.failed:
            await records.on_broker_failure(broker, self._incarnations.get(broker, -1))
        self._returned -= returned
        self._incarnations = self._live()

    def _live(self) -> dict[int, int]:
        return {broker.id: broker.incarnation for broker in self.image.brokers.values()}

    def _on_image_changed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, BrokerUp):
                broker = change.registration
                self._incarnations[broker.id] = broker.incarnation
                self._returned.add(broker.id)
