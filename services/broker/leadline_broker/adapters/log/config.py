"""Settings of logs on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How logs are kept; names follow Kafka's topic settings.

    Attributes:
        segment_bytes: a segment is closed before it would grow beyond this
            (`segment.bytes`); a single larger append still goes into one segment.
        index_interval_bytes: bytes of batches between two index entries
            (`index.interval.bytes`).
        producer_id_expiration_ms: idempotent producers silent for longer are
            forgotten (`producer.id.expiration.ms`).

        publish_app_retention_ms: applications that have published nothing for longer
            are forgotten (`publish.app.retention.ms`).

    """

    segment_bytes: int = 64 * 1024 * 1024
    index_interval_bytes: int = 4096
    producer_id_expiration_ms: int = 86_400_000
    publish_app_retention_ms: int = 604_800_000
