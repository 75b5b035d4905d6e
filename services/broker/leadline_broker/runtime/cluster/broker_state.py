"""The state of this broker in the cluster: its identity, and whether it may act."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from leadline_broker.domain.state import Addresses, ReplicaKey
from leadline_client.errors import (
    BrokerFenced,
    InvalidRequest,
    LeaderHint,
    StaleIncarnation,
)
from leadline_common.directories import FIRST_DIRECTORY_EPOCH
from leadline_common.identity import InternalAddress, ServiceAddress, ServiceIdentity
from leadline_common.rpc import BrokerRow
from leadline_common.znodes import BrokerRegistration

NO_INCARNATION = -1


@dataclass(eq=False)
class BrokerState:
    """Registration, grant and lease of this broker, and the addresses of the others.

    A broker is fenced until the controller has granted all its roles in its current
    incarnation (rule R9), and while its lease is expired (rule R10). It is `leaving` from the
    start of its shutdown, and `stopping` once its leaders have moved. `lease_valid()` returns
    whether it may still act as a leader.
    """

    broker_id: int
    lease_valid: Callable[[], bool]
    addresses: Addresses = field(default=Addresses(), init=False)
    incarnation: int = field(default=NO_INCARNATION, init=False)
    last_incarnation: int = field(default=NO_INCARNATION, init=False)
    granted: bool = field(default=False, init=False)
    leaving: bool = field(default=False, init=False)
    stopping: bool = field(default=False, init=False)
    _registration: BrokerRegistration | None = field(default=None, init=False)
    _addresses: dict[int, BrokerRow] = field(default_factory=dict, init=False)

    def registered(self, registration: BrokerRegistration) -> None:
        """Start a new incarnation, without a grant."""
        self.incarnation = self.last_incarnation = registration.incarnation
        self._registration = registration

    def directory_epoch_of(self, key: ReplicaKey) -> int:
        """Return the directory epoch of a replica of this broker (rule R17)."""
        registration = self._registration
        return FIRST_DIRECTORY_EPOCH if registration is None else registration.epoch_of(*key)

    def fence(self) -> None:
        """Drop registration and grant; `last_incarnation` keeps the incarnation."""
        self.incarnation = NO_INCARNATION
        self.granted = False

    def may_become(self, incarnation: int) -> bool:
        """Tell whether a registration that is not answered yet may be this incarnation's."""
        return self.incarnation == NO_INCARNATION and incarnation > self.last_incarnation

    def require_grant(self) -> None:
        """Raise BrokerFenced unless the broker may act as a leader now (rules R9, R10)."""
        if self.stopping:
            raise BrokerFenced("the broker is stopping")
        if not self.granted:
            raise BrokerFenced("the broker has no grant from the controller yet")
        if not self.lease_valid():
            raise BrokerFenced("the broker has lost its connection to ZooKeeper")

    def require_addressed(self, broker_id: int, incarnation: int) -> None:
        """Raise unless a command is addressed to this broker in this incarnation (rule R1).

        Raises:
            InvalidRequest: it is addressed to another broker.
            StaleIncarnation: it is addressed to another incarnation.

        """
        if broker_id != self.broker_id:
            raise InvalidRequest(f"this is broker {self.broker_id}, not {broker_id}")
        if incarnation != self.incarnation:
            raise StaleIncarnation(
                f"this is incarnation {self.incarnation}, not {incarnation}",
                incarnation=self.incarnation,
            )

    def update_addresses(self, brokers: Iterable[BrokerRow]) -> None:
        """Store the addresses of brokers; an older incarnation never replaces a newer one."""
        for row in brokers:
            known = self._addresses.get(row.id)
            if known is None or row.incarnation >= known.incarnation:
                self._addresses[row.id] = row

    @property
    def url(self) -> str:
        """The URL at which clients call this broker, "" before it is known."""
        return self.addresses.url

    def internal_address_of(self, broker_id: int) -> tuple[InternalAddress, int] | None:
        """Return the internal address and the incarnation of a broker, None if unknown."""
        row = self._addresses.get(broker_id)
        if row is None:
            return None
        return InternalAddress(ServiceIdentity("broker", row.id), row.internal_url), row.incarnation

    def address_of(self, broker_id: int) -> ServiceAddress | None:
        """Return where a broker serves clients and other services, None if it is unknown."""
        row = self._addresses.get(broker_id)
        if row is None:
            return None
        return ServiceAddress(ServiceIdentity("broker", row.id), row.url, row.internal_url)

    def leader_hint(self, leader: int, leader_epoch: int, topic_id: str) -> LeaderHint:
        """Return a hint for a client; the URL is empty if it is unknown."""
        row = self._addresses.get(leader)
        return LeaderHint(leader, row.url if row else "", leader_epoch, topic_id)
