"""The settings of a topic's partitions, from the topic's configs and the broker's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog

from leadline_broker.domain.state import ReplicaConfig
from leadline_broker.runtime.replication.partition import PartitionSettings
from leadline_common.settings import BrokerSettings, accept_configs, parse_topic_configs

logger = structlog.get_logger(__name__)

_NO_LIMIT: Final = -1


class TopicSettings:
    """Settings by configs, shared by all partitions with the same configs.

    Equal configs give the identical object until the broker's settings change.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._broker = settings
        self._known: dict[frozenset[tuple[str, str]], PartitionSettings] = {}

    def of(self, configs: Mapping[str, str]) -> PartitionSettings:
        """Return the settings for a topic's configs; the broker's settings are the defaults."""
        key = frozenset(configs.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._merge(configs)
        return found

    def before_known(self) -> PartitionSettings:
        """Return the settings of a topic whose configs no controller has told yet: keep all.

        They may ask to keep what the broker's own settings would delete.
        """
        own = self.of({})
        return replace(own, configs=None, retention_ms=_NO_LIMIT, retention_bytes=_NO_LIMIT)

    def updated(self, settings: PartitionSettings) -> PartitionSettings:
        """Return the current settings for the configs behind `settings`."""
        configs = settings.configs
        return self.before_known() if configs is None else self.of(dict(configs))

    def rebase(self, settings: BrokerSettings) -> None:
        """Use other broker settings from now on."""
        if settings != self._broker:
            self._broker = settings
            self._known.clear()

    def _merge(self, configs: Mapping[str, str]) -> PartitionSettings:
        broker = self._broker
        accepted = accept_configs("topic", configs)
        if accepted.problems:
            # A newer controller may send configs that this broker does not know; the others hold.
            logger.warning("unknown topic configs ignored", problems=accepted.problems)
        topic = parse_topic_configs(accepted.values)
        return PartitionSettings(
            configs=frozenset(configs.items()),
            replica=ReplicaConfig(
                min_insync_replicas=_first(topic.min_insync_replicas, broker.min_insync_replicas),
                replica_lag_time_max_ms=broker.replica_lag_time_max_ms,
            ),
            max_message_bytes=_first(topic.max_message_bytes, broker.message_max_bytes),
            timestamp_after_max_ms=_first(
                topic.message_timestamp_after_max_ms, broker.log_message_timestamp_after_max_ms
            ),
            segment_bytes=_first(topic.segment_bytes, broker.log_segment_bytes),
            retention_ms=_first(topic.retention_ms, broker.log_retention_ms),
            retention_bytes=_first(topic.retention_bytes, broker.log_retention_bytes),
        )


def _first(stated: int | None, default: int) -> int:
    return default if stated is None else stated
