"""The settings that a topic may have of its own."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from leadline_common.settings.fields import KIB, topic_setting


class TopicConfigs(BaseModel):
    """What may be set for one topic; None is the broker's or controller's own setting."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retention_ms: int | None = topic_setting("log.retention.ms", unit="ms", ge=-1)
    retention_bytes: int | None = topic_setting("log.retention.bytes", unit="bytes", ge=-1)
    segment_bytes: int | None = topic_setting("log.segment.bytes", unit="bytes", ge=KIB)
    min_insync_replicas: int | None = topic_setting("min.insync.replicas", ge=1)
    unclean_leader_election_enable: bool | None = topic_setting("unclean.leader.election.enable")
    max_message_bytes: int | None = topic_setting("message.max.bytes", unit="bytes", ge=KIB)
