"""Every setting, with its type, default, limits and meaning.

The attribute of a setting has underscores for the dots of its name. These
classes are the one table: what is read, checked and documented comes from them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

_KIB = 1024
_MIB = 1024 * _KIB


def _setting(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    dynamic: bool = False,
    ge: int | None = None,
    le: int | None = None,
) -> Any:
    facts: JsonDict = {"unit": unit, "dynamic": dynamic}
    return Field(default, description=meaning, ge=ge, le=le, json_schema_extra=facts)


def _required(meaning: str, *, ge: int | None = None) -> Any:
    return Field(description=meaning, ge=ge, json_schema_extra={"unit": "", "dynamic": False})


class ServiceSettings(BaseModel):
    """What every service is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    zookeeper_connect: str = _setting(
        "127.0.0.1:2181", "ZooKeeper's addresses: `host:port[,host:port…][/chroot]`."
    )
    zookeeper_session_timeout_ms: int = _setting(
        6_000,
        "How long ZooKeeper keeps the session of a silent service, and so how long a dead leader "
        "can go unnoticed.",
        unit="ms",
        ge=500,
    )
    listen_host: str = _setting(
        "127.0.0.1",
        "Address to listen on. Anything but loopback is refused as long as requests are not "
        "authenticated.",
    )
    listen_port: int = _setting(0, "Port to listen on; 0 takes a free one.", ge=0, le=65_535)
    advertised_url: str = _setting(
        "",
        "URL at which others reach this service, as published in ZooKeeper. Empty: the address it "
        "listens on.",
    )
    min_insync_replicas: int = _setting(
        2,
        "In-sync replicas below which acks=all is refused and the high watermark stands still; "
        "never more than the partition has replicas.",
        dynamic=True,
        ge=1,
    )
    request_max_bytes: int = _setting(
        16 * _MIB,
        "Largest request body that is read; a larger one is answered 413.",
        unit="bytes",
        ge=_KIB,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "The least severe log lines to write."
    )
    log_format: Literal["json", "console"] = _setting(
        "json", "One JSON object per log line, or text for people."
    )


class ControllerSettings(ServiceSettings):
    """What a controller is told."""

    controller_id: int = _required("The number of this controller, unique among controllers.", ge=0)
    default_replication_factor: int = _setting(
        3,
        "Replicas of a new partition when the request does not say; as many as there are live "
        "brokers, where those are fewer.",
        ge=1,
        le=32_767,
    )
    num_partitions: int = _setting(
        1, "Partitions of a new topic when the request does not say.", ge=1
    )
    unclean_leader_election_enable: bool = _setting(
        False,
        "Whether a replica outside the ISR may lead when no ISR member is alive: available, at "
        "the price of acknowledged records.",
        dynamic=True,
    )
    command_ack_timeout_ms: int = _setting(
        10_000, "How long to wait for a broker's answer before resending.", unit="ms", ge=1
    )
    reconcile_interval_ms: int = _setting(
        5_000,
        "How often to compare the cluster with ZooKeeper, whatever watches have said.",
        unit="ms",
        ge=100,
    )
    create_topic_timeout_ms: int = _setting(
        30_000,
        "How long creating a topic may wait for the brokers to hear of it.",
        unit="ms",
        ge=1,
    )
    audit_outbox_max_entries: int = _setting(
        10_000, "Entries kept under `/admin/audit` in ZooKeeper; the oldest go first.", ge=1
    )
    zookeeper_multi_max_ops: int = _setting(
        1_000,
        "Operations in one ZooKeeper transaction; each must stay far below `jute.maxbuffer`.",
        ge=2,
        le=5_000,
    )


class BrokerSettings(ServiceSettings):
    """What a broker is told."""

    broker_id: int = _required("The number of this broker, unique among brokers.", ge=0)
    broker_rack: str | None = _setting(
        None, "The rack, zone or power feed of this broker; replicas are spread over racks."
    )
    log_dir: str = _required("Directory of the replica logs; never shared between brokers.")
    log_segment_bytes: int = _setting(
        64 * _MIB, "Size at which a log segment is closed.", unit="bytes", dynamic=True, ge=_KIB
    )
    log_retention_ms: int = _setting(
        7 * 24 * 3_600_000,
        "Age at which closed segments are deleted; -1 keeps them.",
        unit="ms",
        dynamic=True,
        ge=-1,
    )
    log_retention_bytes: int = _setting(
        -1,
        "Size of a partition's log beyond which closed segments are deleted; -1 is no limit.",
        unit="bytes",
        dynamic=True,
        ge=-1,
    )
    log_retention_check_interval_ms: int = _setting(
        300_000, "How often to look for segments past their retention.", unit="ms", ge=100
    )
    replica_lag_time_max_ms: int = _setting(
        30_000,
        "A follower that has not been caught up for this long leaves the ISR.",
        unit="ms",
        dynamic=True,
        ge=100,
    )
    replica_fetch_wait_max_ms: int = _setting(
        500, "How long a follower's fetch waits for data at the leader.", unit="ms", ge=1
    )
    replica_fetch_min_bytes: int = _setting(
        1, "Bytes that end a follower's wait early.", unit="bytes", ge=1
    )
    replica_fetch_max_bytes: int = _setting(
        10 * _MIB, "Largest answer to a follower's fetch.", unit="bytes", ge=_KIB
    )
    replica_high_watermark_checkpoint_interval_ms: int = _setting(
        5_000, "How often the high watermarks are written to disk.", unit="ms", ge=100
    )
    num_replica_fetchers: int = _setting(
        1, "Fetchers, each its own connection, per leader that this broker follows.", ge=1, le=16
    )
    message_max_bytes: int = _setting(
        _MIB, "Largest record batch that is appended.", unit="bytes", dynamic=True, ge=_KIB
    )
    stray_grace_ms: int = _setting(
        24 * 3_600_000,
        "How long a replica that the controller does not know is kept aside before it is deleted.",
        unit="ms",
        ge=0,
    )
    producer_id_expiration_ms: int = _setting(
        24 * 3_600_000,
        "How long the sequence of a silent idempotent producer is remembered.",
        unit="ms",
        ge=1_000,
    )
    heartbeat_interval_ms: int = _setting(
        500, "How often the controller is told what this broker has applied.", unit="ms", ge=10
    )
    open_files_max: int = _setting(
        1_024, "Log files held open; the least recently used is closed first.", ge=16
    )


class TopicConfigs(BaseModel):
    """What may be set for one topic; None is the broker's or controller's own setting."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retention_ms: int | None = _setting(
        None, "As `log.retention.ms`.", unit="ms", dynamic=True, ge=-1
    )
    retention_bytes: int | None = _setting(
        None, "As `log.retention.bytes`.", unit="bytes", dynamic=True, ge=-1
    )
    segment_bytes: int | None = _setting(
        None, "As `log.segment.bytes`.", unit="bytes", dynamic=True, ge=_KIB
    )
    min_insync_replicas: int | None = _setting(
        None, "As the setting of the same name.", dynamic=True, ge=1
    )
    unclean_leader_election_enable: bool | None = _setting(
        None, "As the setting of the same name.", dynamic=True
    )
    max_message_bytes: int | None = _setting(
        None, "As `message.max.bytes`.", unit="bytes", dynamic=True, ge=_KIB
    )
