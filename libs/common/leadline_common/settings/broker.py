"""The settings of a broker, and those of a topic, which override some of them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from leadline_client.unreadable import MOST_DECOMPRESSED_BYTES
from leadline_common.identity import Kind
from leadline_common.settings.fields import (
    KIB,
    MIB,
    ServiceSettings,
    required,
    setting,
    topic_setting,
)


class BrokerSettings(ServiceSettings):
    """The settings of a broker."""

    kind: ClassVar[Kind | None] = "broker"

    broker_id: int = required("The id of this broker, unique among brokers.", ge=0)
    broker_rack: str | None = setting(
        None, "The rack, zone or power feed of this broker; replicas are spread over racks."
    )
    log_dir: str = required("Directory of the replica logs; brokers must not share one.")
    log_segment_bytes: int = setting(
        64 * MIB,
        "Size at which a log segment is closed.",
        scope="cluster-wide",
        ge=KIB,
    )
    log_retention_ms: int = setting(
        7 * 24 * 3_600_000,
        "Age at which closed segments are deleted; -1 keeps them.",
        scope="cluster-wide",
        ge=-1,
    )
    log_retention_bytes: int = setting(
        -1,
        "Size of a partition's log beyond which closed segments are deleted; -1 is no limit.",
        scope="cluster-wide",
        ge=-1,
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "How often to check for segments past their retention.", ge=100
    )
    log_scrub_interval_ms: int = setting(
        7 * 24 * 3_600_000,
        "How often to read all closed segments from the disk and repair what is damaged.",
        scope="cluster-wide",
        ge=100,
    )
    log_scrub_bytes_per_s: int = setting(
        MIB,
        "How fast to read closed segments to find damage; 0 turns that off.",
        scope="cluster-wide",
        ge=0,
    )
    replica_lag_time_max_ms: int = setting(
        30_000,
        "A follower that has not been caught up for this long leaves the ISR.",
        scope="cluster-wide",
        ge=100,
    )
    replica_fetch_wait_max_ms: int = setting(
        500, "How long a follower's fetch waits at the leader for data.", ge=1
    )
    replica_fetch_min_bytes: int = setting(1, "Bytes that end a follower's wait early.", ge=1)
    replica_fetch_max_bytes: int = setting(
        10 * MIB, "Largest response to a follower's fetch.", ge=KIB
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000, "How often high watermarks are written to disk.", ge=100
    )
    num_replica_fetchers: int = setting(
        1,
        "Fetchers, each with its own connection, per leader that it follows.",
        ge=1,
        le=16,
    )
    log_flush_timeout_ms: int = setting(
        30_000,
        "How long an fsync, or a write of a staged upload, may take. A broker whose disk does not "
        "answer for longer ends, so that others lead its partitions. One that stops waits for "
        "no longer without any progress.",
        scope="cluster-wide",
        ge=1_000,
    )
    message_max_bytes: int = setting(
        MIB, "Largest accepted record batch.", scope="cluster-wide", ge=KIB
    )
    message_max_decompressed_bytes: int = setting(
        16 * MIB,
        "Most bytes that a compressed batch may decompress to; a topic whose max.message.bytes is "
        "higher allows that many.",
        scope="cluster-wide",
        ge=KIB,
        le=MOST_DECOMPRESSED_BYTES,
    )
    log_message_timestamp_after_max_ms: int = setting(
        24 * 3_600_000,
        "How far a record's timestamp may be ahead of its leader's clock; -1 is no limit. "
        "Retention by time keeps a segment, and all after it, until its latest record is old.",
        scope="cluster-wide",
        ge=-1,
    )
    stray_grace_ms: int = setting(
        24 * 3_600_000,
        "How long a stray replica, unknown to the controller, is kept before it is deleted.",
        ge=0,
    )
    producer_id_expiration_ms: int = setting(
        24 * 3_600_000,
        "How long the sequence numbers of an inactive idempotent producer are kept.",
        ge=1_000,
    )
    producer_ids_max: int = setting(
        200_000,
        "Most idempotent producers, and most publishing applications, that a broker remembers, "
        "counted for each replica; new ones are refused beyond it, and above half of it a "
        "producer that is idle for 10 minutes is forgotten.",
        scope="cluster-wide",
        ge=1,
    )
    publish_app_retention_ms: int = setting(
        7 * 24 * 3_600_000,
        "How long the latest batch of an inactive publishing application is kept.",
        ge=1_000,
    )
    staging_ttl_ms: int = setting(
        3_600_000,
        "How long staged batches are kept without being published.",
        scope="cluster-wide",
        ge=1_000,
    )
    staging_max_bytes: int = setting(
        3_072 * MIB,
        "Most bytes staged on a broker at a time, copies for other leaders included.",
        scope="cluster-wide",
        ge=KIB,
    )
    quota_produce_bytes_per_s: int = setting(
        0,
        "Bytes that one user may produce on a broker per second on average, and ten times as many "
        "at once; 0 is no quota. A user's own quota counts instead. Without authentication it is "
        "the quota of each client's address.",
        scope="cluster-wide",
        aliases=("quota.producer.default",),
        ge=0,
    )
    quota_fetch_bytes_per_s: int = setting(
        0,
        "As `quota.produce.bytes.per.s`, for the bytes that are read.",
        scope="cluster-wide",
        aliases=("quota.consumer.default",),
        ge=0,
    )
    metrics_partitions_max: int = setting(
        1_000,
        "Most partitions of a broker with metrics of their own. Further ones count in the metrics "
        "of their topic.",
        ge=0,
        le=100_000,
    )
    metrics_topics_max: int = setting(
        1_000,
        "Most topics of a broker with metrics of their own. Further ones count in the totals.",
        ge=0,
        le=100_000,
    )
    load_window_ms: int = setting(
        60_000,
        "The time over which the load of partitions is measured.",
        scope="cluster-wide",
        ge=100,
    )
    heartbeat_interval_ms: int = setting(
        500, "How often this broker reports its applied state to the controller.", ge=10
    )
    controlled_shutdown_enable: bool = setting(
        True,
        "Whether a stopping broker first moves leadership of its partitions to others.",
        scope="cluster-wide",
    )
    controlled_shutdown_timeout_ms: int = setting(
        10_000,
        "How long a stopping broker waits until others lead its partitions; a second signal ends "
        "the wait.",
        scope="cluster-wide",
        ge=0,
    )
    open_files_max: int = setting(
        1_024,
        "Most open log files; the least recently used is closed first. At most a quarter of the "
        "descriptors that the process may have (`ulimit -n`).",
        scope="per-broker",
        ge=16,
    )

    def _own_directory(self) -> Path | None:
        return Path(self.log_dir).absolute() if self.log_dir else None


class TopicConfigs(BaseModel):
    """The settings of one topic; None means the value of the broker or controller."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retention_ms: int | None = topic_setting("log.retention.ms", ge=-1)
    retention_bytes: int | None = topic_setting("log.retention.bytes", ge=-1)
    segment_bytes: int | None = topic_setting("log.segment.bytes", ge=KIB)
    min_insync_replicas: int | None = topic_setting("min.insync.replicas", ge=1)
    unclean_leader_election_enable: bool | None = topic_setting("unclean.leader.election.enable")
    max_message_bytes: int | None = topic_setting("message.max.bytes", ge=KIB)
    message_timestamp_after_max_ms: int | None = topic_setting(
        "log.message.timestamp.after.max.ms", ge=-1
    )
