"""Copies of staged batches: which brokers must hold one, and which brokers to ask for one.

Every broker that can be elected must be able to publish. So staging succeeds once every
member of the ISR, and of the proposed ISR, holds a copy, as for the high watermark (rule
R5). A replica that joins later may lead as well: it asks the others for what it lacks.
"""

from __future__ import annotations

from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.state import ReplicaState
from leadline_client.errors import FencedLeaderEpoch, UnknownLeaderEpoch


def must_hold(replica: Replica) -> tuple[int, ...]:
    """Return the other brokers that must hold a copy of what this leader stages, in order.

    Raises:
        NotLeader: another broker leads, or none does.

    """
    pending = replica.leading().pending
    members = {*replica.state.isr, *(pending.isr if pending else ())}
    return tuple(sorted(members - {replica.state.broker_id}))


def to_ask(state: ReplicaState) -> tuple[int, ...]:
    """Return the brokers that may hold a copy: the other replicas, in-sync ones first."""
    others = {*state.isr, *state.assigned} - {state.broker_id}
    return tuple(sorted(others, key=lambda broker: (broker not in state.isr, broker)))


def require_follower(replica: Replica, leader: int, leader_epoch: int) -> None:
    """Raise unless this replica follows that leader in that epoch (rule R1).

    Raises:
        FencedLeaderEpoch: this replica knows a later leader.
        UnknownLeaderEpoch: this replica does not follow that leader, or not yet.

    """
    require_current(replica.state, leader, leader_epoch)
    if replica.role is not Role.FOLLOWER or replica.state.leader_epoch != leader_epoch:
        raise UnknownLeaderEpoch(
            f"this replica does not follow broker {leader} in leader epoch {leader_epoch}"
        )


def require_current(state: ReplicaState, leader: int, leader_epoch: int) -> None:
    """Raise if this replica knows another leader of that epoch, or a later leader.

    This weaker check is enough to read or drop a copy, because the content of an id never
    changes. The leader may have been elected before this replica learns of it.

    Raises:
        FencedLeaderEpoch: this replica knows a later leader.
        UnknownLeaderEpoch: another broker leads in that epoch.

    """
    if leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(f"the leader epoch is {state.leader_epoch}, not {leader_epoch}")
    if leader_epoch == state.leader_epoch and leader != state.leader:
        raise UnknownLeaderEpoch(f"broker {state.leader} leads in that epoch, not {leader}")
