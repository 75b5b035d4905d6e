"""How many idempotent producers and publishing applications a broker remembers.

Anybody can invent ids. Each one that has written takes memory in every replica until it expires, so
a leader refuses new ones beyond a limit. Followers refuse nothing: they hold what leaders accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_client.errors import TooManyProducers
from leadline_common.clock import Clock

_COUNT_EVERY_MS: Final = 1_000
CROWDED_EXPIRATION_MS: Final = 600_000
"""How long an idle idempotent producer is kept once half of the limit is reached.

No client repeats a batch for so long, so its sequence is no longer needed to recognize one.
"""


@dataclass(slots=True)
class _Number:
    """A number that is counted from time to time, and estimated in between."""

    count: Callable[[], int]
    value: int = 0
    counted_ms: int = -_COUNT_EVERY_MS

    def at(self, now_ms: int) -> int:
        if now_ms - self.counted_ms >= _COUNT_EVERY_MS:
            self.value, self.counted_ms = self.count(), now_ms
        return self.value


@dataclass(eq=False, kw_only=True)
class RememberedProducers:
    """Admits new producers and applications to the logs of this broker, up to `most()` of each.

    Owned by the event loop.
    """

    replicas: ReplicaManager
    clock: Clock
    most: Callable[[], int]
    _producers: _Number = field(init=False)
    _applications: _Number = field(init=False)

    def __post_init__(self) -> None:
        """Count nothing yet."""
        self._producers = _Number(self.count_producers)
        self._applications = _Number(self.count_applications)

    def count_producers(self) -> int:
        """Return the number of idempotent producers, once for each replica that has them."""
        return sum(len(partition.log.producers) for partition in self.replicas.all())

    def count_applications(self) -> int:
        """Return the number of publishing applications, once for each replica that has them."""
        return sum(len(partition.log.producers.publishes) for partition in self.replicas.all())

    @property
    def is_crowded(self) -> bool:
        """Whether idle producers are to be forgotten early."""
        return self.count_producers() > self.most() // 2

    def admit_producer(self) -> None:
        """Count an idempotent producer that is new in a log.

        Raises:
            TooManyProducers: as many as allowed are remembered.

        """
        self._admit(self._producers, "idempotent producers")

    def admit_application(self) -> None:
        """Count an application that publishes to a log for the first time.

        Raises:
            TooManyProducers: as many as allowed are remembered.

        """
        self._admit(self._applications, "publishing applications")

    def _admit(self, number: _Number, kind: str) -> None:
        known, most = number.at(self.clock.monotonic_ms()), self.most()
        if known >= most:
            raise TooManyProducers(
                f"this broker remembers {known} {kind}, and producer.ids.max is {most}: only those "
                "that it knows may write until others have expired"
            )
        number.value += 1
