"""Which right each operation of the API needs: the one table, by operation id.

A service does not start if one of its routes is missing here. The services check the table before
they read a request; what a request names in its body, the operation itself checks (`IN_BODY`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from leadline_common.access.rights import Access, Action, Kind

Where = Literal["cluster", "path", "body"]


@dataclass(frozen=True, slots=True)
class Need:
    """The right that an operation needs.

    `where` is where the request names the topic or the group: in its path (the parameter `topic`
    or `group`), or in its body, its query or its answer, which only the operation can check.
    """

    action: Action
    kind: Kind = "cluster"
    where: Where = "cluster"

    def is_met(self, access: Access, name: str) -> bool:
        """Tell whether an access suffices for the topic or the group `name` of the path.

        If the path names none, the right on any one is enough here.
        """
        if self.where == "body":
            return access.allows_somewhere(self.action, self.kind)
        return access.allows(self.action, self.kind, name)


def _topic(action: Action) -> Need:
    return Need(action, "topic", "path")


def _group(action: Action) -> Need:
    return Need(action, "group", "path")


def _topics_in_body(action: Action) -> Need:
    return Need(action, "topic", "body")


CONNECT: Final = Need(Action.CONNECT)
MONITOR: Final = Need(Action.MONITOR)
OPERATE: Final = Need(Action.OPERATE)
AUDIT: Final = Need(Action.AUDIT)
ADMINISTER: Final = Need(Action.ADMINISTER)

PUBLIC: Final = frozenset({"healthz", "readyz"})
"""Operations for everybody: load balancers and probes have no identity."""

INTERNAL_OPERATIONS: Final = frozenset(
    {
        "controlled_shutdown",
        "drop_staged_copies",
        "heartbeat",
        "keep_staged",
        "leader_and_isr",
        "read_staged",
        "replica_fetch",
        "routed_append",
        "routed_offsets",
        "routed_read",
        "stop_replica",
        "update_metadata",
    }
)
"""Operations between services: the internal listener alone has them, and each names its speaker."""

NEEDS: Final[dict[str, Need]] = {
    # Who serves the cluster.
    "documentation": CONNECT,
    "find_coordinator": CONNECT,
    "list_brokers": CONNECT,
    "read_broker": CONNECT,
    "read_cluster": CONNECT,
    "read_controller": CONNECT,
    "read_coordinator": CONNECT,
    "this_broker": CONNECT,
    "what_if_assignment": CONNECT,
    "what_if_election": CONNECT,
    "what_if_placement": CONNECT,
    "what_if_reassignment": CONNECT,
    # Topics.
    "bulk_offsets": _topics_in_body(Action.DESCRIBE),
    "epoch_end": _topic(Action.DESCRIBE),
    "list_partitions": _topic(Action.DESCRIBE),
    "list_topics": _topics_in_body(Action.DESCRIBE),
    "partition_offsets": _topic(Action.DESCRIBE),
    "read_metadata": _topics_in_body(Action.DESCRIBE),
    "read_topic": _topic(Action.DESCRIBE),
    "read_topic_configs": _topic(Action.DESCRIBE),
    "add_partitions": _topic(Action.OPERATE),
    "alter_topic_configs": _topic(Action.OPERATE),
    "cancel_reassignment": _topic(Action.OPERATE),
    "create_topic": _topics_in_body(Action.OPERATE),
    "delete_topic": _topic(Action.OPERATE),
    "elect": _topics_in_body(Action.OPERATE),
    "reassign": _topics_in_body(Action.OPERATE),
    "remove_partitions": _topic(Action.OPERATE),
    # Records.
    "allocate_producer_id": _topics_in_body(Action.WRITE),
    "drop_staged": _topic(Action.WRITE),
    "fetch": _topic(Action.READ),
    "produce": _topic(Action.WRITE),
    "produce_to_topic": _topic(Action.WRITE),
    "publish": _topic(Action.WRITE),
    "stage": _topic(Action.WRITE),
    # Groups.
    "channel": _group(Action.CONSUME),
    "commit_offsets": _group(Action.CONSUME),
    "delete_group": _group(Action.OPERATE),
    "delete_offsets": _group(Action.OPERATE),
    "evict_member": _group(Action.OPERATE),
    "join_group": _group(Action.CONSUME),
    "leave_group": _group(Action.CONSUME),
    "list_groups": Need(Action.DESCRIBE, "group", "body"),
    "read_group": _group(Action.DESCRIBE),
    "read_lag": _group(Action.DESCRIBE),
    "read_offsets": _group(Action.DESCRIBE),
    "poll_consumer": _group(Action.CONSUME),
    "rebalance_group": _group(Action.OPERATE),
    "reset_offsets": _group(Action.OPERATE),
    "sync_consumer": _group(Action.CONSUME),
    # The state of the whole cluster.
    "can_stop": MONITOR,
    "list_broker_failures": MONITOR,
    "list_failed_brokers": MONITOR,
    "list_reassignments": MONITOR,
    "list_tasks": MONITOR,
    "load": MONITOR,
    "read_broker_configs": MONITOR,
    "read_cluster_configs": MONITOR,
    "read_events": MONITOR,
    "read_metrics": MONITOR,
    "read_plan": MONITOR,
    "read_task": MONITOR,
    "replicas": MONITOR,
    # Its change.
    "alter_broker_configs": OPERATE,
    "alter_cluster_configs": OPERATE,
    "apply_plan": OPERATE,
    "cancel_task": OPERATE,
    "change_task": OPERATE,
    "drain": OPERATE,
    "forget_broker": OPERATE,
    "make_plan": OPERATE,
    # Its past.
    "export_audit": AUDIT,
    "export_audit_range": AUDIT,
    "export_groups": AUDIT,
    "export_table": AUDIT,
    "read_audit": AUDIT,
    "read_audit_entry": AUDIT,
    "read_audit_head": AUDIT,
    "read_partition_history": AUDIT,
    "read_past_tasks": AUDIT,
    # Rights.
    "create_token": ADMINISTER,
    "create_user": ADMINISTER,
    "delete_user": ADMINISTER,
    "list_users": ADMINISTER,
    "read_user": ADMINISTER,
    "revoke_token": ADMINISTER,
    "set_grants": ADMINISTER,
    "set_quotas": ADMINISTER,
}


def need_of(operation: str) -> Need | None:
    """Return the right that an operation needs, None if the table does not say."""
    return NEEDS.get(operation)
