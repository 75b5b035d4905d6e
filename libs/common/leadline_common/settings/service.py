"""The settings that every service has."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from leadline_common.settings.fields import KIB, MIB, setting


class ServiceSettings(BaseModel):
    """What every service is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    zookeeper_connect: str = setting(
        "127.0.0.1:2181", "ZooKeeper's addresses: `host:port[,host:port…][/chroot]`."
    )
    zookeeper_session_timeout_ms: int = setting(
        6_000,
        "How long ZooKeeper keeps the session of a silent service, and so how long a dead leader "
        "can go unnoticed.",
        unit="ms",
        ge=500,
    )
    listen_host: str = setting(
        "127.0.0.1",
        "Address to listen on. Anything but loopback is refused as long as requests are not "
        "authenticated.",
    )
    listen_port: int = setting(0, "Port to listen on; 0 takes a free one.", ge=0, le=65_535)
    advertised_url: str = setting(
        "",
        "URL at which others reach this service, as published in ZooKeeper. Empty: the address it "
        "listens on.",
    )
    min_insync_replicas: int = setting(
        2,
        "In-sync replicas below which acks=all is refused and the high watermark stands still; "
        "never more than the partition has replicas.",
        scope="cluster-wide",
        ge=1,
    )
    request_max_bytes: int = setting(
        16 * MIB,
        "Largest request body that is read; a larger one is answered 413.",
        unit="bytes",
        ge=KIB,
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The least severe log lines to write."
    )
    log_format: Literal["json", "console"] = setting(
        "json", "One JSON object per log line, or text for people."
    )
