"""The settings of a broker."""

from __future__ import annotations

from leadline_common.settings.fields import KIB, MIB, required, setting
from leadline_common.settings.service import ServiceSettings


class BrokerSettings(ServiceSettings):
    """What a broker is told."""

    broker_id: int = required("The number of this broker, unique among brokers.", ge=0)
    broker_rack: str | None = setting(
        None, "The rack, zone or power feed of this broker; replicas are spread over racks."
    )
    log_dir: str = required("Directory of the replica logs; never shared between brokers.")
    log_segment_bytes: int = setting(
        64 * MIB,
        "Size at which a log segment is closed.",
        unit="bytes",
        scope="cluster-wide",
        ge=KIB,
    )
    log_retention_ms: int = setting(
        7 * 24 * 3_600_000,
        "Age at which closed segments are deleted; -1 keeps them.",
        unit="ms",
        scope="cluster-wide",
        ge=-1,
    )
    log_retention_bytes: int = setting(
        -1,
        "Size of a partition's log beyond which closed segments are deleted; -1 is no limit.",
        unit="bytes",
        scope="cluster-wide",
        ge=-1,
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "How often to look for segments past their retention.", unit="ms", ge=100
    )
    replica_lag_time_max_ms: int = setting(
        30_000,
        "A follower that has not been caught up for this long leaves the ISR.",
        unit="ms",
        scope="cluster-wide",
        ge=100,
    )
    replica_fetch_wait_max_ms: int = setting(
        500, "How long a follower's fetch waits for data at the leader.", unit="ms", ge=1
    )
    replica_fetch_min_bytes: int = setting(
        1, "Bytes that end a follower's wait early.", unit="bytes", ge=1
    )
    replica_fetch_max_bytes: int = setting(
        10 * MIB, "Largest answer to a follower's fetch.", unit="bytes", ge=KIB
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000, "How often the high watermarks are written to disk.", unit="ms", ge=100
    )
    num_replica_fetchers: int = setting(
        1, "Fetchers, each its own connection, per leader that this broker follows.", ge=1, le=16
    )
    message_max_bytes: int = setting(
        MIB, "Largest record batch that is appended.", unit="bytes", scope="cluster-wide", ge=KIB
    )
    stray_grace_ms: int = setting(
        24 * 3_600_000,
        "How long a replica that the controller does not know is kept aside before it is deleted.",
        unit="ms",
        ge=0,
    )
    producer_id_expiration_ms: int = setting(
        24 * 3_600_000,
        "How long the sequence of a silent idempotent producer is remembered.",
        unit="ms",
        ge=1_000,
    )
    publish_app_retention_ms: int = setting(
        7 * 24 * 3_600_000,
        "How long the latest batch of an application that publishes nothing more is remembered.",
        unit="ms",
        ge=1_000,
    )
    staging_ttl_ms: int = setting(
        3_600_000,
        "How long staged batches are kept that nobody publishes.",
        unit="ms",
        scope="cluster-wide",
        ge=1_000,
    )
    staging_max_bytes: int = setting(
        3_072 * MIB,
        "How much may be staged on a broker at a time, copies for other leaders included.",
        unit="bytes",
        scope="cluster-wide",
        ge=KIB,
    )
    load_window_ms: int = setting(
        60_000,
        "The time over which the load of partitions is told.",
        unit="ms",
        scope="cluster-wide",
        ge=100,
    )
    heartbeat_interval_ms: int = setting(
        500, "How often the controller is told what this broker has applied.", unit="ms", ge=10
    )
    controlled_shutdown_enable: bool = setting(
        True,
        "Whether a broker that is told to stop lets others lead its partitions first.",
        scope="cluster-wide",
    )
    controlled_shutdown_timeout_ms: int = setting(
        10_000,
        "How long a broker that is told to stop may take to be relieved of what it leads; a "
        "second signal ends the wait.",
        unit="ms",
        scope="cluster-wide",
        ge=0,
    )
    open_files_max: int = setting(
        1_024,
        "Log files held open; the least recently used is closed first.",
        scope="per-broker",
        ge=16,
    )
