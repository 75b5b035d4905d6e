"""The words for elections: in decisions, audit entries and logs, and in the API that asks for them.

The decisions themselves are the controller's (`leadline_controller.domain.election`).
"""

from __future__ import annotations

from enum import StrEnum


class ElectionKind(StrEnum):
    """Why a leader is chosen."""

    NEW_PARTITION = "new_partition"
    OFFLINE = "offline"
    REPLICA_OFFLINE = "replica_offline"
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"


class ElectionReason(StrEnum):
    """Why this one leads: what the audit, the log and the what-if API say."""

    NEW = "new"
    ISR = "isr"
    PREFERRED = "preferred"
    REASSIGNED = "reassigned"
    UNCLEAN = "unclean"
    NONE = "none"
    UNCHANGED = "unchanged"


class StopRisk(StrEnum):
    """What is wrong with stopping a broker, for one partition.

    `no_successor`: it leads, and no other member of the ISR could. `offline`: the
    partition has no leader, and waits for a broker like this one. `below_min_insync`:
    acks=all would be refused. `under_replicated`: another replica is missing from the
    ISR already, so that stopping leaves fewer copies than there should be.
    """

    NO_SUCCESSOR = "no_successor"
    OFFLINE = "offline"
    BELOW_MIN_INSYNC = "below_min_insync"
    UNDER_REPLICATED = "under_replicated"
