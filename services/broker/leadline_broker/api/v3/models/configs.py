"""The bodies about settings of topics, brokers and the cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from leadline_broker.api.v3.models.envelope import Int32, Listed, Metadata, Strict

ConfigSource = Literal[
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLUSTER_LINK_CONFIG",
    "UNKNOWN",
]


class ConfigSynonym(Strict):
    """The value of a setting at one level; null if it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource


class KafkaConfig(Strict):
    """A setting with its value in force, which is text; null if it is sensitive or not known."""

    metadata: Metadata
    cluster_id: str
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: ConfigSource
    synonyms: list[ConfigSynonym] = Field(description="Its values at all levels, in force first")


class KafkaBrokerConfig(KafkaConfig):
    """A setting of a broker."""

    kind: Literal["KafkaBrokerConfig"] = "KafkaBrokerConfig"
    broker_id: Int32


class KafkaClusterConfig(KafkaConfig):
    """A setting that was set for all brokers at run time."""

    kind: Literal["KafkaClusterConfig"] = "KafkaClusterConfig"
    config_type: Literal["BROKER"] = "BROKER"


class KafkaTopicConfig(KafkaConfig):
    """A setting of a topic."""

    kind: Literal["KafkaTopicConfig"] = "KafkaTopicConfig"
    topic_name: str


class KafkaBrokerConfigList(Listed[KafkaBrokerConfig]):
    """Settings of brokers, by broker and name."""

    kind: Literal["KafkaBrokerConfigList"] = "KafkaBrokerConfigList"


class KafkaClusterConfigList(Listed[KafkaClusterConfig]):
    """The settings that were set for all brokers at run time, by name."""

    kind: Literal["KafkaClusterConfigList"] = "KafkaClusterConfigList"


class KafkaTopicConfigList(Listed[KafkaTopicConfig]):
    """Settings of topics, by topic and name."""

    kind: Literal["KafkaTopicConfigList"] = "KafkaTopicConfigList"


class ConfigValue(Strict):
    """A value for a setting."""

    model_config = ConfigDict(json_schema_extra={"example": {"value": "86400000"}})

    value: str | None = None


class ConfigChange(Strict):
    """A setting to set to `value`, or with the operation DELETE to reset."""

    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] | None = None


MOST_CHANGES = 10_000


class ConfigChangeList(Strict):
    """Settings to change, all or none; with `validate_only` nothing is changed."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "data": [{"name": "log.retention.ms", "value": "86400000"}],
                "validate_only": True,
            }
        }
    )

    data: list[ConfigChange] = Field(max_length=MOST_CHANGES)
    validate_only: bool | None = None


class TopicConfigChanges(Strict):
    """Settings of one topic to change."""

    topic_name: str
    configs: list[ConfigChange] = Field(max_length=MOST_CHANGES)


class ManyTopicConfigChanges(Strict):
    """Settings to change of several topics: those of each topic all or none."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "data": [
                    {
                        "topic_name": "orders",
                        "configs": [{"name": "retention.ms", "value": "86400000"}],
                    }
                ],
                "validate_only": True,
            }
        }
    )

    data: Annotated[list[TopicConfigChanges], Field(min_length=1, max_length=1_000)]
    validate_only: bool | None = None


class TopicConfigFailure(Strict):
    """A topic whose settings were not changed, or may not have been."""

    topic_name: str
    error_code: Int32
    message: str


class TopicConfigFailures(Strict):
    """The topics whose settings were not changed; those of all others were."""

    failures: list[TopicConfigFailure]
