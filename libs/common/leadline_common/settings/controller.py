"""The settings of a controller."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from leadline_common.identity import Kind
from leadline_common.settings.fields import INT32_MAX, ServiceSettings, required, setting


class ControllerSettings(ServiceSettings):
    """The settings of a controller."""

    kind: ClassVar[Kind | None] = "controller"

    controller_id: int = required("The id of this controller, unique among controllers.", ge=0)
    default_replication_factor: int = setting(
        3,
        "Replicas of a new partition if the request has no number; with fewer live brokers, one on "
        "each.",
        scope="cluster-wide",
        ge=1,
        le=32_767,
    )
    num_partitions: int = setting(
        1,
        "Partitions of a new topic if the request has no number.",
        scope="cluster-wide",
        ge=1,
        le=200_000,
    )
    unclean_leader_election_enable: bool = setting(
        False,
        "Whether a replica outside the ISR may lead if no ISR member is live: this restores "
        "availability, and may lose acknowledged records.",
        scope="cluster-wide",
    )
    auto_leader_rebalance_enable: bool = setting(
        True,
        "Whether to elect preferred leaders automatically for brokers whose imbalance exceeds "
        "`leader.imbalance.per.broker.percentage`.",
        scope="cluster-wide",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        "Share of the partitions with a broker as preferred leader that others may lead before "
        "preferred leaders are elected.",
        scope="cluster-wide",
        ge=0,
        le=100,
    )
    leader_imbalance_check_interval_ms: int = setting(
        300_000,
        "How often to check the balance of leaders.",
        scope="cluster-wide",
        ge=100,
        le=INT32_MAX,
    )
    command_ack_timeout_ms: int = setting(
        10_000, "How long to wait for a broker's response before resending.", ge=1
    )
    broker_contact_timeout_ms: int = setting(
        30_000,
        "How long most live brokers may be out of this controller's reach before it lets another "
        "one lead. Less than the brokers' `zookeeper.session.timeout.ms`, and brokers that have "
        "just failed count as out of reach.",
        ge=100,
    )
    reconcile_interval_ms: int = setting(
        5_000,
        "How often to compare the cluster with ZooKeeper, independently of watches.",
        scope="cluster-wide",
        ge=100,
        le=3_600_000,
    )
    create_topic_timeout_ms: int = setting(
        30_000,
        "How long the creation of a topic may wait until the brokers know it.",
        scope="cluster-wide",
        ge=1,
        le=3_600_000,
    )
    data_dir: str = setting(
        "data",
        "Directory of this controller's files, which it keeps in `controller-ID` below.",
    )
    history_url: str = setting(
        "",
        "Database of the cluster's history: an SQLAlchemy URL such as "
        "`sqlite:////var/lib/leadline/history.db` or `postgresql+psycopg://…`. Empty: the file "
        "`history.db` among this controller's files. `sqlite://` keeps it in memory only, which "
        "does not count as a stored copy of an audit entry.",
        sensitive=True,
    )
    audit_retention_ms: int = setting(
        90 * 24 * 3_600_000,
        "Age at which audit entries are deleted from the history, while their totals are kept; -1 "
        "keeps the entries.",
        ge=-1,
    )
    audit_outbox_keep_entries: int = setting(
        1_000,
        "Entries to keep under `/admin/audit` in ZooKeeper after every controller has stored them.",
        ge=0,
    )
    audit_outbox_max_entries: int = setting(
        10_000,
        "Entries under `/admin/audit` beyond which those that two controllers have stored are "
        "deleted, without waiting for a controller that is far behind.",
        ge=1,
    )
    idempotency_retention_ms: int = setting(
        24 * 3_600_000,
        "How long the response to a request with an Idempotency-Key is kept for repetitions.",
        scope="cluster-wide",
        ge=1_000,
    )
    zookeeper_multi_max_ops: int = setting(
        1_000,
        "Most operations in one ZooKeeper transaction, whose size must remain far below "
        "`jute.maxbuffer`.",
        ge=2,
        le=5_000,
    )
    reassignment_max_concurrent_replica_movements: int = setting(
        INT32_MAX,
        "Most replicas of one partition that one step of its reassignment adds (KIP-435).",
        scope="cluster-wide",
        aliases=("reassignment.parallel.replica.count",),
        ge=1,
        le=INT32_MAX,
    )
    reassignment_max_concurrent_partition_movements: int = setting(
        INT32_MAX,
        "Most partitions in a reassignment step at the same time (KIP-435).",
        scope="cluster-wide",
        aliases=("reassignment.parallel.partition.count",),
        ge=1,
        le=INT32_MAX,
    )
    reassignment_max_concurrent_leader_movements: int = setting(
        INT32_MAX,
        "Most partitions in a step that moves their leader at the same time (KIP-435).",
        scope="cluster-wide",
        aliases=("reassignment.parallel.leader.movements",),
        ge=1,
        le=INT32_MAX,
    )
    reassignment_agent_interval_ms: int = setting(
        30_000,
        "How often the reassignment agent checks every reassignment, independently of events.",
        scope="cluster-wide",
        ge=100,
        le=3_600_000,
    )
    failed_broker_interval_ms: int = setting(
        600_000,
        "How long a broker may be down before self-healing recreates its replicas on others "
        "(KIP-46); -1 disables it. A restart within this time moves nothing.",
        scope="cluster-wide",
        ge=-1,
    )
    failed_broker_chunk_partitions: int = setting(
        50,
        "Partitions of a failed broker that are healed as one chunk; chunks run one after another.",
        scope="cluster-wide",
        ge=1,
        le=500,  # a chunk must fit into one node, however long the names of its topics are
    )
    failed_broker_budget_percent: int = setting(
        34,
        "Share of the brokers that may be down before healing stops, because more failures suggest "
        "a failure of the infrastructure.",
        scope="cluster-wide",
        ge=0,
        le=100,
    )
    reassignment_throttle_bytes_per_s: int = setting(
        -1,
        "Most that each broker sends, and that it receives, for the moving replicas of all tasks "
        "together; -1 is no limit. Each task's own throttle applies below it.",
        scope="cluster-wide",
        ge=-1,
    )
    failed_broker_throttle_bytes_per_s: int = setting(
        -1,
        "Most of that for healing; -1 is no limit of its own. Healing goes first, and leaves a "
        "tenth of `reassignment.throttle.bytes.per.s` to other tasks.",
        scope="cluster-wide",
        ge=-1,
    )
    quota_partition_changes_per_s: int = setting(
        0,
        "Partitions that one user may create or delete per second on average, and ten times as "
        "many at once; 0 is no quota. A user's own quota counts instead. It needs "
        "`authentication=required`.",
        scope="cluster-wide",
        ge=0,
    )
    tasks_kept: int = setting(
        100,
        "How many finished tasks to show, the latest ones; the audit history has all of them.",
        scope="cluster-wide",
        ge=1,
        le=10_000,
    )

    @property
    def own_directory(self) -> Path:
        """The directory of this controller's files."""
        return Path(self.data_dir).absolute() / f"controller-{self.controller_id}"

    def _own_directory(self) -> Path:
        return self.own_directory
