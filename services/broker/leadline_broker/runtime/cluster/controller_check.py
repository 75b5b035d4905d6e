"""Checks with ZooKeeper that a command comes from the active controller (rule R11).

The caller's certificate proves which controller it is. Only ZooKeeper knows which controller leads,
and in which epoch: a broker that stored a higher epoch than ZooKeeper has would refuse every
controller from then on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import structlog

from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.ports import ClusterStore
from leadline_client.errors import BrokerFenced, StaleControllerEpoch, UnknownControllerEpoch
from leadline_common.rpc import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from leadline_common.zk.errors import ZkError

Command: TypeAlias = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest

logger = structlog.get_logger(__name__)


@dataclass(eq=False)
class ControllerCheck:
    """Remembers the last controller that ZooKeeper confirmed: one read for each term.

    `registered()` waits for the answer to a registration that is under way. Owned by the event
    loop.
    """

    store: ClusterStore
    broker_state: BrokerState
    registered: Callable[[], Awaitable[None]]
    _confirmed: tuple[int, int] | None = field(default=None, init=False)

    async def admit(self, command: Command) -> None:
        """Refuse a command for another broker or incarnation, or of an inactive controller.

        Raises:
            InvalidRequest, StaleIncarnation: see `BrokerState.require_addressed`.
            LeadlineError: see `require_active`.

        """
        if self.broker_state.may_become(command.incarnation):
            await self.registered()
        self.broker_state.require_addressed(command.broker_id, command.incarnation)
        if isinstance(command, UpdateMetadataRequest):
            await self.require_active(command.controller.id, command.controller.epoch)
        else:
            await self.require_active(command.controller_id, command.controller_epoch)

    async def require_active(self, controller_id: int, epoch: int) -> None:
        """Refuse unless ZooKeeper says that this controller leads in this epoch.

        A former controller that was confirmed once passes: its epoch is older than the one that
        the broker has stored, and refused for that.

        Raises:
            UnknownControllerEpoch: the epoch is higher than ZooKeeper's.
            StaleControllerEpoch: another controller leads.
            BrokerFenced: ZooKeeper cannot be asked.

        """
        claimed = (controller_id, epoch)
        if claimed == self._confirmed:
            return
        try:
            holder, current = await self.store.elected_controller()
        except ZkError as problem:
            raise BrokerFenced(f"ZooKeeper does not say who the controller is: {problem}") from None
        if epoch > current:
            logger.error("command of an unknown epoch", controller=controller_id, epoch=epoch)
            raise UnknownControllerEpoch(f"ZooKeeper has controller epoch {current}, not {epoch}")
        if epoch < current or holder not in {controller_id, None}:
            raise StaleControllerEpoch(
                f"controller {holder} leads in epoch {current}", controller_epoch=current
            )
        self._confirmed = claimed
