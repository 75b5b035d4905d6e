"""Settings as the v3 API shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from leadline_broker.api.v3.models.configs import (
    ConfigSource,
    ConfigSynonym,
    KafkaBrokerConfig,
    KafkaClusterConfig,
    KafkaTopicConfig,
)
from leadline_broker.api.v3.routes import ClusterView
from leadline_common.api.configs import ConfigBody, Source

_SOURCES: Final[dict[Source, ConfigSource]] = {
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "broker": "DYNAMIC_BROKER_CONFIG",
    "cluster": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "static": "STATIC_BROKER_CONFIG",
    "default": "DEFAULT_CONFIG",
}


def topic_configs(
    cluster: ClusterView, topic: str, found: Iterable[ConfigBody]
) -> list[KafkaTopicConfig]:
    """Return the settings of a topic, by name."""
    links = cluster.links
    return [
        KafkaTopicConfig(
            metadata=links.resource(
                ("topics", topic, "configs", one.name), f"topic={topic}", f"config={one.name}"
            ),
            topic_name=topic,
            **_common(cluster, one),
        )
        for one in _by_name(found)
    ]


def broker_configs(
    cluster: ClusterView, broker_id: int, found: Iterable[ConfigBody]
) -> list[KafkaBrokerConfig]:
    """Return the settings of a broker, by name."""
    links = cluster.links
    return [
        KafkaBrokerConfig(
            metadata=links.resource(
                ("brokers", broker_id, "configs", one.name),
                f"broker={broker_id}",
                f"config={one.name}",
            ),
            broker_id=broker_id,
            **_common(cluster, one),
        )
        for one in _by_name(found)
    ]


def cluster_configs(cluster: ClusterView, found: Iterable[ConfigBody]) -> list[KafkaClusterConfig]:
    """Return the settings that were set for all brokers at run time, by name."""
    links = cluster.links
    return [
        KafkaClusterConfig(
            metadata=links.resource(("broker-configs", one.name), f"broker-config={one.name}"),
            **_common(cluster, one),
        )
        for one in _by_name(found)
        if one.source == "cluster"
    ]


def default_of(config: ConfigBody) -> ConfigBody:
    """Return what a setting of a topic is without a value of the topic's own."""
    others = [one for one in config.synonyms if one.source != "topic"]
    if not others:
        return config.model_copy(
            update={"value": config.default, "source": "default", "synonyms": []}
        )
    first = others[0]
    changes = {"value": first.value, "source": first.source, "synonyms": others}
    return config.model_copy(update=changes)


def _by_name(found: Iterable[ConfigBody]) -> list[ConfigBody]:
    return sorted(found, key=lambda one: one.name)


def _common(cluster: ClusterView, config: ConfigBody) -> dict[str, Any]:
    return {
        "cluster_id": cluster.cluster_id,
        "name": config.name,
        "value": None if config.sensitive else config.value,
        "is_default": config.source == "default",
        "is_read_only": config.read_only,
        "is_sensitive": config.sensitive,
        "source": _SOURCES[config.source],
        "synonyms": [
            ConfigSynonym(
                name=one.name,
                value=None if config.sensitive else one.value,
                source=_SOURCES[one.source],
            )
            for one in config.synonyms
        ],
    }
