"""The settings of a controller."""

from __future__ import annotations

from leadline_common.settings.fields import INT32_MAX, required, setting
from leadline_common.settings.service import ServiceSettings


class ControllerSettings(ServiceSettings):
    """What a controller is told."""

    controller_id: int = required("The number of this controller, unique among controllers.", ge=0)
    default_replication_factor: int = setting(
        3,
        "Replicas of a new partition when the request does not say; as many as there are live "
        "brokers, where those are fewer.",
        scope="cluster-wide",
        ge=1,
        le=32_767,
    )
    num_partitions: int = setting(
        1,
        "Partitions of a new topic when the request does not say.",
        scope="cluster-wide",
        ge=1,
        le=200_000,
    )
    unclean_leader_election_enable: bool = setting(
        False,
        "Whether a replica outside the ISR may lead when no ISR member is alive: available, at "
        "the price of acknowledged records.",
        scope="cluster-wide",
    )
    command_ack_timeout_ms: int = setting(
        10_000, "How long to wait for a broker's answer before resending.", unit="ms", ge=1
    )
    reconcile_interval_ms: int = setting(
        5_000,
        "How often to compare the cluster with ZooKeeper, whatever watches have said.",
        unit="ms",
        scope="cluster-wide",
        ge=100,
        le=3_600_000,
    )
    create_topic_timeout_ms: int = setting(
        30_000,
        "How long creating a topic may wait for the brokers to hear of it.",
        unit="ms",
        scope="cluster-wide",
        ge=1,
        le=3_600_000,
    )
    history_url: str = setting(
        "",
        "Where this controller keeps the history of the cluster: an SQLAlchemy URL such as "
        "`sqlite:////var/lib/leadline/history.db` or `postgresql+psycopg://…`. Empty: in memory, "
        "read again from ZooKeeper and from other controllers at every start.",
    )
    audit_retention_ms: int = setting(
        90 * 24 * 3_600_000,
        "Age at which audit entries leave the history, their sum being kept; -1 keeps them.",
        unit="ms",
        ge=-1,
    )
    audit_outbox_keep_entries: int = setting(
        1_000,
        "Entries that stay under `/admin/audit` in ZooKeeper although every controller has them.",
        ge=0,
    )
    audit_outbox_max_entries: int = setting(
        10_000,
        "Entries under `/admin/audit` beyond which a controller that is far behind is not waited "
        "for: what two others have stored goes.",
        ge=1,
    )
    zookeeper_multi_max_ops: int = setting(
        1_000,
        "Operations in one ZooKeeper transaction; each must stay far below `jute.maxbuffer`.",
        ge=2,
        le=5_000,
    )
    reassignment_max_concurrent_replica_movements: int = setting(
        INT32_MAX,
        "Replicas of one partition that a step of its reassignment may add at a time (KIP-435).",
        scope="cluster-wide",
        aliases=("reassignment.parallel.replica.count",),
        ge=1,
        le=INT32_MAX,
    )
    reassignment_max_concurrent_partition_movements: int = setting(
        INT32_MAX,
        "Partitions that may be in a step of their reassignment at a time (KIP-435).",
        scope="cluster-wide",
        aliases=("reassignment.parallel.partition.count",),
        ge=1,
        le=INT32_MAX,
    )
    reassignment_max_concurrent_leader_movements: int = setting(
        INT32_MAX,
        "Partitions that may be in a step that changes their leader at a time (KIP-435).",
        scope="cluster-wide",
        aliases=("reassignment.parallel.leader.movements",),
        ge=1,
        le=INT32_MAX,
    )
    reassignment_agent_interval_ms: int = setting(
        30_000,
        "How often the reassignment agent looks at every reassignment, whatever it was told.",
        unit="ms",
        scope="cluster-wide",
        ge=100,
        le=3_600_000,
    )
    tasks_kept: int = setting(
        100,
        "Tasks that are over and still shown, the latest ones; the audit history has all.",
        scope="cluster-wide",
        ge=1,
        le=10_000,
    )
