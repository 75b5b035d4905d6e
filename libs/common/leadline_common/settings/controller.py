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
    auto_leader_rebalance_enable: bool = setting(
        True,
        "Whether leadership goes back to preferred replicas by itself, where a broker has lost "
        "more of it than `leader.imbalance.per.broker.percentage`.",
        scope="cluster-wide",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        "Share of the partitions that prefer a broker and may be led by others before the "
        "balance moves them back.",
        unit="%",
        scope="cluster-wide",
        ge=0,
        le=100,
    )
    leader_imbalance_check_interval_ms: int = setting(
        300_000,
        "How often the balance of leaders is looked at.",
        unit="ms",
        scope="cluster-wide",
        ge=100,
        le=INT32_MAX,
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
    idempotency_retention_ms: int = setting(
        24 * 3_600_000,
        "How long the answer to a request with an Idempotency-Key is kept, to be given again.",
        unit="ms",
        scope="cluster-wide",
        ge=1_000,
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
    failed_broker_interval_ms: int = setting(
        600_000,
        "How long a broker may be down before its replicas are made anew on others (KIP-46); -1 "
        "never does. A restart within this time moves nothing.",
        unit="ms",
        scope="cluster-wide",
        ge=-1,
    )
    failed_broker_chunk_partitions: int = setting(
        50,
        "Partitions of a failed broker that are healed together; chunks run one after another.",
        scope="cluster-wide",
        ge=1,
        le=500,  # a chunk is one node, which has to hold them whatever their topics are called
    )
    failed_broker_budget_percent: int = setting(
        34,
        "Share of the brokers that may be down before healing stops: more than that is no failure "
        "of brokers, but of what they stand on.",
        unit="%",
        scope="cluster-wide",
        ge=0,
        le=100,
    )
    failed_broker_throttle_bytes_per_s: int = setting(
        -1,
        "Throttle of healing, per broker, for sending and for receiving; -1 is none.",
        unit="bytes/s",
        scope="cluster-wide",
        ge=-1,
    )
    tasks_kept: int = setting(
        100,
        "Tasks that are over and still shown, the latest ones; the audit history has all.",
        scope="cluster-wide",
        ge=1,
        le=10_000,
    )
