"""Copies of what is staged: who has to hold one before staging answers, and who is asked for one.

Whoever can be elected has to be able to publish. So what is staged is answered when every
member of the ISR holds it, of the proposed one too, as for the high watermark (rule R5).
A replica that joins later may lead as well: it asks the others for what it lacks.
"""

from __future__ import annotations

from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.state import ReplicaState
from leadline_client.errors import FencedLeaderEpoch, UnknownLeaderEpoch


def must_hold(replica: Replica) -> tuple[int, ...]:
    """Return the other brokers that have to hold what is staged with this leader, in order.

    Raises:
        NotLeader: another broker leads, or none.

    """
    pending = replica.leading().pending
    members = {*replica.state.isr, *(pending.isr if pending else ())}
    return tuple(sorted(members - {replica.state.broker_id}))


def to_ask(state: ReplicaState) -> tuple[int, ...]:
    """Return the brokers that may hold what is not here: the other replicas, in-sync ones first."""
    others = {*state.isr, *state.assigned} - {state.broker_id}
    return tuple(sorted(others, key=lambda broker: (broker not in state.isr, broker)))


def require_follower(replica: Replica, leader: int, leader_epoch: int) -> None:
    """Raise unless this replica follows that leader in that epoch (rule R1).

    Raises:
        FencedLeaderEpoch: a later leader is known here.
        UnknownLeaderEpoch: that leader is not followed here, or not yet.

    """
    require_current(replica.state, leader, leader_epoch)
    if replica.role is not Role.FOLLOWER or replica.state.leader_epoch != leader_epoch:
        raise UnknownLeaderEpoch(
            f"this replica does not follow broker {leader} in leader epoch {leader_epoch}"
        )


def require_current(state: ReplicaState, leader: int, leader_epoch: int) -> None:
    """Raise where another leader is known here, of that epoch or of a later one.

    That is enough for one who asks for what is under an id, which never changes, or has no
    use for it any more: he may have been elected before this replica hears of it.

    Raises:
        FencedLeaderEpoch: a later leader is known here.
        UnknownLeaderEpoch: another broker leads in that epoch.

    """
    if leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(f"the leader epoch is {state.leader_epoch}, not {leader_epoch}")
    if leader_epoch == state.leader_epoch and leader != state.leader:
        raise UnknownLeaderEpoch(f"broker {state.leader} leads in that epoch, not {leader}")
