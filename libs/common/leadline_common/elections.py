"""Kinds and reasons of leader elections, as in audit entries, logs and the API.

The controller elects leaders (`leadline_controller.domain.election`).
"""

from __future__ import annotations

from enum import StrEnum


class ElectionKind(StrEnum):
    """Why a leader is elected."""

    NEW_PARTITION = "new_partition"
    OFFLINE = "offline"
    REPLICA_OFFLINE = "replica_offline"
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"


class ElectionReason(StrEnum):
    """Why this replica leads, in the audit, the log and the what-if API.

    Nobody leads because of `none`, or because of `directory_replaced`: members of the ISR are
    live, but registered with other log directories than those of their memberships (rule R17).
    """

    NEW = "new"
    ISR = "isr"
    PREFERRED = "preferred"
    REASSIGNED = "reassigned"
    UNCLEAN = "unclean"
    NONE = "none"
    DIRECTORY_REPLACED = "directory_replaced"
    UNCHANGED = "unchanged"


class StopRisk(StrEnum):
    """The risk of stopping a broker, for one partition.

    `no_successor`: it leads, and no other member of the ISR could lead. `offline`: the partition
    has no leader, and this broker could become it. `below_min_insync`: acks=all would be refused.
    `under_replicated`: another replica is missing from the ISR already.
    """

    NO_SUCCESSOR = "no_successor"
    OFFLINE = "offline"
    BELOW_MIN_INSYNC = "below_min_insync"
    UNDER_REPLICATED = "under_replicated"
