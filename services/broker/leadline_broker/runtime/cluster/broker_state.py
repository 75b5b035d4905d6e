"""Who this broker is in the cluster right now, and whether it may act."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leadline_client.errors import (
    BrokerFenced,
    InvalidRequest,
    LeaderHint,
    StaleIncarnation,
)
from leadline_common.rpc import BrokerRow

NO_INCARNATION = -1


class BrokerState:
    """Registration, grant and lease of this broker, and where the others are.

    A broker is fenced until the controller has granted it all its roles in its
    present incarnation (rule R9), and whenever its lease does not hold (R10). From the
    order to stop it is `leaving`, and `stopping` once it has handed over.
    """

    def __init__(self, broker_id: int, lease_valid: Callable[[], bool]) -> None:
        self.broker_id = broker_id
        self.url = ""
        self.incarnation = NO_INCARNATION
        self.last_incarnation = NO_INCARNATION
        self.granted = False
        self.leaving = False
        self.stopping = False
        self._lease_valid = lease_valid
        self._addresses: dict[int, BrokerRow] = {}

    def registered(self, incarnation: int) -> None:
        """Take up a new registration, without any grant yet."""
        self.incarnation = self.last_incarnation = incarnation

    def fence(self) -> None:
        """Lose registration and grant; `last_incarnation` remembers which it was."""
        self.incarnation = NO_INCARNATION
        self.granted = False

    def lease_valid(self) -> bool:
        """Tell whether this broker may still act as a leader."""
        return self._lease_valid()

    def require_grant(self) -> None:
        """Raise BrokerFenced unless the broker may serve as leader now (rules R9, R10)."""
        if self.stopping:
            raise BrokerFenced("the broker is stopping")
        if not self.granted:
            raise BrokerFenced("the broker awaits its grant from the controller")
        if not self._lease_valid():
            raise BrokerFenced("the broker has lost touch with ZooKeeper")

    def require_addressed(self, broker_id: int, incarnation: int) -> None:
        """Raise unless a command is meant for this broker in this incarnation (rule R1).

        Raises:
            InvalidRequest: meant for another broker.
            StaleIncarnation: meant for another incarnation.

        """
        if broker_id != self.broker_id:
            raise InvalidRequest(f"this is broker {self.broker_id}, not {broker_id}")
        if incarnation != self.incarnation:
            raise StaleIncarnation(
                f"this is incarnation {self.incarnation}, not {incarnation}",
                incarnation=self.incarnation,
            )

    def learn(self, brokers: Iterable[BrokerRow]) -> None:
        """Note where other brokers are; an older incarnation never replaces a newer one."""
        for row in brokers:
            known = self._addresses.get(row.id)
            if known is None or row.incarnation >= known.incarnation:
                self._addresses[row.id] = row

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return URL and incarnation of a broker, or None where they are not known."""
        row = self._addresses.get(broker_id)
        return None if row is None else (row.url, row.incarnation)

    def hint(self, leader: int, leader_epoch: int) -> LeaderHint:
        """Return a hint for a client; the URL is empty where it is not known."""
        address = self.address_of(leader)
        return LeaderHint(leader, address[0] if address else "", leader_epoch)
