"""What the sequences need of a system."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, Self

from leadline_common.zk.session import ZkSession

BROKERS: Final = (1, 2, 3)
REPLICATION: Final = 3
MIN_IN_SYNC: Final = 2
DEADLINE_S: Final = 300.0
NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class Partition(NamedTuple):
    """A partition in a broker's metadata; `leader` is -1 while there is none."""

    topic: str
    number: int
    leader: int
    isr: tuple[int, ...]


class View(NamedTuple):
    """What one broker's metadata says."""

    brokers: frozenset[int]
    partitions: tuple[Partition, ...]

    def led_by(self, broker: int) -> tuple[Partition, ...]:
        """Return the partitions that a broker leads."""
        return tuple(one for one in self.partitions if one.leader == broker)

    def is_healed_of(self, broker: int) -> bool:
        """Tell whether every partition has a leader, and none has this broker as one or in sync."""
        return all(
            one.leader >= 0 and broker not in (one.leader, *one.isr) for one in self.partitions
        )

    @property
    def is_whole(self) -> bool:
        """Whether every broker is there, and every replica in sync."""
        return self.brokers == frozenset(BROKERS) and all(
            one.leader >= 0 and len(one.isr) == REPLICATION for one in self.partitions
        )


class System(Protocol):
    """A cluster of three brokers, which runs while its asynchronous context is open."""

    name: str
    start_s: float
    """How long the start took: until every broker's metadata named three brokers."""

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as the clients take them."""

    def bootstrap_without(self, broker: int) -> str:
        """Return the addresses of the other brokers."""

    async def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        configs: Mapping[str, str] = NO_CONFIGS,
        replicas: int = REPLICATION,
    ) -> None:
        """Create a topic, of whose replicas two must acknowledge."""

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    def zookeeper_session(self) -> AbstractAsyncContextManager[ZkSession]:
        """Open a session that may read this system's nodes."""

    async def view(self, broker: int) -> View:
        """Return the whole metadata as one broker has it."""

    def broker_pid(self, broker: int) -> int:
        """Return the process id of a broker."""

    async def kill_broker(self, broker: int) -> None:
        """End a broker as a crash does."""

    async def restart_broker(self, broker: int) -> None:
        """Start a killed broker again, without waiting for it."""

    async def controller_broker(self) -> int | None:
        """Return the broker that is the active controller, if one is."""

    async def kill_controller(self) -> int | None:
        """End the active controller as a crash does; return the broker that it was, if any."""

    async def restart_controller(self) -> None:
        """Start again what `kill_controller` killed, without waiting for it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *details: object) -> None: ...
