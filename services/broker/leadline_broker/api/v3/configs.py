"""Settings: of topics, of brokers, and of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeVar

from fastapi import Path
from starlette.responses import JSONResponse, Response

from leadline_broker.api.v3.config_changes import (
    alter,
    changes_of,
    find_config,
    of_broker,
    of_cluster,
    of_topic,
    read,
    reset,
    set_value,
)
from leadline_broker.api.v3.errors import V3Error, code_of, message_of
from leadline_broker.api.v3.lookup import find_rows
from leadline_broker.api.v3.models.configs import (
    ConfigChangeList,
    ConfigValue,
    KafkaBrokerConfig,
    KafkaBrokerConfigList,
    KafkaClusterConfig,
    KafkaClusterConfigList,
    KafkaTopicConfig,
    KafkaTopicConfigList,
    ManyTopicConfigChanges,
    TopicConfigFailure,
    TopicConfigFailures,
)
from leadline_broker.api.v3.routes import (
    READ,
    WRITE,
    WRITE_BODY,
    BrokerId,
    InCluster,
    TopicName,
    also,
    documented,
    list_response,
    v3_router,
)
from leadline_broker.api.v3.shown_configs import (
    broker_configs,
    cluster_configs,
    default_of,
    topic_configs,
)
from leadline_client.errors import LeadlineError, NotFound, UnknownTopic
from leadline_common.access.caller import current_caller, require
from leadline_common.access.rights import Action

TAG: Final = "v3 configs"
_AT_ONCE: Final = 8
"""How many topics or brokers the controller is asked about at a time."""
KeyT = TypeVar("KeyT")
RowT = TypeVar("RowT")
router = v3_router(TAG)

ConfigName = Annotated[str, Path(description="The setting's name", examples=["log.retention.ms"])]
TopicConfigName = Annotated[str, Path(description="The setting's name", examples=["retention.ms"])]


@router.get(
    "/broker-configs",
    response_model=KafkaClusterConfigList,
    **documented("v3_list_cluster_configs", "List the cluster's settings", READ),
)
async def list_cluster_configs(cluster: InCluster) -> Response:
    """Return the settings that were set for all brokers at run time, by name."""
    found = cluster_configs(cluster, await read(cluster, of_cluster()))
    own = cluster.links.listed("broker-configs")
    return await list_response("KafkaClusterConfigList", own, found)


@router.get(
    "/broker-configs/{name}",
    **documented("v3_read_cluster_config", "Get a setting of the cluster", READ),
)
async def read_cluster_config(cluster: InCluster, name: ConfigName) -> KafkaClusterConfig:
    """Return a setting that was set for all brokers at run time."""
    return find_config(cluster_configs(cluster, await read(cluster, of_cluster())), name)


@router.put(
    "/broker-configs/{name}",
    status_code=204,
    **documented("v3_set_cluster_config", "Set a setting of the cluster", WRITE_BODY),
)
async def set_cluster_config(cluster: InCluster, name: ConfigName, wanted: ConfigValue) -> None:
    """Set a setting for all brokers."""
    await set_value(cluster, of_cluster(), name, wanted.value)


@router.delete(
    "/broker-configs/{name}",
    status_code=204,
    **documented("v3_reset_cluster_config", "Reset a setting of the cluster", WRITE),
)
async def reset_cluster_config(cluster: InCluster, name: ConfigName) -> None:
    """Reset a setting that was set for all brokers; one that was not set stays as it is."""
    known = cluster_configs(cluster, await read(cluster, of_cluster()))
    if any(one.name == name for one in known):
        await reset(cluster, of_cluster(), name)


@router.post(
    "/broker-configs:alter",
    status_code=204,
    **documented("v3_alter_cluster_configs", "Change settings of the cluster", WRITE_BODY),
)
async def alter_cluster_configs(cluster: InCluster, wanted: ConfigChangeList) -> None:
    """Set and reset settings for all brokers, all or none."""
    await alter(cluster, of_cluster(), changes_of(wanted.data), dry_run=bool(wanted.validate_only))


@router.get(
    "/brokers/-/configs",
    response_model=KafkaBrokerConfigList,
    **documented("v3_list_all_broker_configs", "List the settings of all brokers", READ),
)
async def list_all_broker_configs(cluster: InCluster) -> Response:
    """Return the settings of the live brokers, by broker and name."""

    async def of_one(broker_id: int) -> Sequence[KafkaBrokerConfig]:
        return broker_configs(cluster, broker_id, await read(cluster, of_broker(broker_id)))

    rows = await _of_each(sorted(cluster.metadata.brokers), of_one)
    own = cluster.links.listed("brokers", "-", "configs")
    return await list_response("KafkaBrokerConfigList", own, rows)


@router.get(
    "/brokers/{broker_id}/configs",
    response_model=KafkaBrokerConfigList,
    **documented("v3_list_broker_configs", "List the settings of a broker", READ),
)
async def list_broker_configs(cluster: InCluster, broker_id: BrokerId) -> Response:
    """Return the settings of a broker, by name."""
    found = broker_configs(cluster, broker_id, await read(cluster, of_broker(broker_id)))
    own = cluster.links.listed("brokers", broker_id, "configs")
    return await list_response("KafkaBrokerConfigList", own, found)


@router.get(
    "/brokers/{broker_id}/configs/{name}",
    **documented("v3_read_broker_config", "Get a setting of a broker", READ),
)
async def read_broker_config(
    cluster: InCluster, broker_id: BrokerId, name: ConfigName
) -> KafkaBrokerConfig:
    """Return a setting of a broker with its values at all levels."""
    answer = await read(cluster, of_broker(broker_id))
    return find_config(broker_configs(cluster, broker_id, answer), name)


@router.put(
    "/brokers/{broker_id}/configs/{name}",
    status_code=204,
    **documented("v3_set_broker_config", "Set a setting of a broker", WRITE_BODY),
)
async def set_broker_config(
    cluster: InCluster, broker_id: BrokerId, name: ConfigName, wanted: ConfigValue
) -> None:
    """Set a setting of a broker."""
    await set_value(cluster, of_broker(broker_id), name, wanted.value)


@router.delete(
    "/brokers/{broker_id}/configs/{name}",
    status_code=204,
    **documented("v3_reset_broker_config", "Reset a setting of a broker", WRITE),
)
async def reset_broker_config(cluster: InCluster, broker_id: BrokerId, name: ConfigName) -> None:
    """Reset a setting of a broker to that of the cluster, or its default."""
    await reset(cluster, of_broker(broker_id), name)


@router.post(
    "/brokers/{broker_id}/configs:alter",
    status_code=204,
    **documented("v3_alter_broker_configs", "Change settings of a broker", WRITE_BODY),
)
async def alter_broker_configs(
    cluster: InCluster, broker_id: BrokerId, wanted: ConfigChangeList
) -> None:
    """Set and reset settings of a broker, all or none."""
    target, changes = of_broker(broker_id), changes_of(wanted.data)
    await alter(cluster, target, changes, dry_run=bool(wanted.validate_only))


@router.get(
    "/topics/-/configs",
    response_model=KafkaTopicConfigList,
    **documented("v3_list_all_topic_configs", "List the settings of all topics", READ),
)
async def list_all_topic_configs(cluster: InCluster) -> Response:
    """Return the settings of the topics that the caller may describe, by topic and name."""

    async def of_one(topic: str) -> Sequence[KafkaTopicConfig]:
        return topic_configs(cluster, topic, await read(cluster, of_topic(topic)))

    names = current_caller().access.visible("topic", sorted(cluster.metadata.topic_names()))
    rows = await _of_each(names, of_one)
    own = cluster.links.listed("topics", "-", "configs")
    return await list_response("KafkaTopicConfigList", own, rows)


@router.post(
    "/topics/-/configs:alter",
    status_code=204,
    **documented(
        "v3_alter_many_topic_configs",
        "Change settings of several topics",
        also(207, TopicConfigFailures, "Some topics were not changed", WRITE_BODY),
    ),
)
async def alter_many_topic_configs(cluster: InCluster, wanted: ManyTopicConfigChanges) -> Response:
    """Set and reset settings of several topics: those of each topic all or none.

    If it fails for some of them, 207 lists these; the others are changed.
    """
    changes = [(one.topic_name, changes_of(one.configs)) for one in wanted.data]
    require(Action.OPERATE, "topic", {topic for topic, _ in changes})
    failures = []
    dry_run = bool(wanted.validate_only)
    for number, (topic, one) in enumerate(changes):
        try:
            await alter(cluster, of_topic(topic), one, dry_run=dry_run, part=f"{number} {topic}")
        except (V3Error, LeadlineError) as error:
            failures.append(_failure(topic, error))
    if not failures:
        return Response(status_code=204)
    return JSONResponse(TopicConfigFailures(failures=failures).model_dump(), 207)


@router.get(
    "/topics/{topic_name}/configs",
    response_model=KafkaTopicConfigList,
    **documented("v3_list_topic_configs", "List the settings of a topic", READ),
)
async def list_topic_configs(cluster: InCluster, topic_name: TopicName) -> Response:
    """Return the settings of a topic, by name."""
    found = topic_configs(cluster, topic_name, await read(cluster, of_topic(topic_name)))
    own = cluster.links.listed("topics", topic_name, "configs")
    return await list_response("KafkaTopicConfigList", own, found)


@router.get(
    "/topics/{topic_name}/default-configs",
    response_model=KafkaTopicConfigList,
    **documented("v3_list_default_topic_configs", "List the defaults of a topic", READ),
)
async def list_default_topic_configs(cluster: InCluster, topic_name: TopicName) -> Response:
    """Return the settings that a topic would have without any of its own, by name."""
    find_rows(cluster, topic_name)
    answer = await read(cluster, of_topic(topic_name))
    found = topic_configs(cluster, topic_name, map(default_of, answer))
    own = cluster.links.listed("topics", topic_name, "default-configs")
    return await list_response("KafkaTopicConfigList", own, found)


@router.get(
    "/topics/{topic_name}/configs/{name}",
    **documented("v3_read_topic_config", "Get a setting of a topic", READ),
)
async def read_topic_config(
    cluster: InCluster, topic_name: TopicName, name: TopicConfigName
) -> KafkaTopicConfig:
    """Return a setting of a topic with its values at all levels."""
    answer = await read(cluster, of_topic(topic_name))
    return find_config(topic_configs(cluster, topic_name, answer), name)


@router.put(
    "/topics/{topic_name}/configs/{name}",
    status_code=204,
    **documented("v3_set_topic_config", "Set a setting of a topic", WRITE_BODY),
)
async def set_topic_config(
    cluster: InCluster, topic_name: TopicName, name: TopicConfigName, wanted: ConfigValue
) -> None:
    """Set a setting of a topic."""
    await set_value(cluster, of_topic(topic_name), name, wanted.value)


@router.delete(
    "/topics/{topic_name}/configs/{name}",
    status_code=204,
    **documented("v3_reset_topic_config", "Reset a setting of a topic", WRITE),
)
async def reset_topic_config(
    cluster: InCluster, topic_name: TopicName, name: TopicConfigName
) -> None:
    """Reset a setting of a topic to that of the brokers."""
    await reset(cluster, of_topic(topic_name), name)


@router.post(
    "/topics/{topic_name}/configs:alter",
    status_code=204,
    openapi_extra={
        "requestBody": {
            "content": {
                "application/json": {
                    "example": {
                        "data": [{"name": "retention.ms", "value": "86400000"}],
                        "validate_only": True,
                    }
                }
            }
        }
    },
    **documented("v3_alter_topic_configs", "Change settings of a topic", WRITE_BODY),
)
async def alter_topic_configs(
    cluster: InCluster, topic_name: TopicName, wanted: ConfigChangeList
) -> None:
    """Set and reset settings of a topic, all or none."""
    target, changes = of_topic(topic_name), changes_of(wanted.data)
    await alter(cluster, target, changes, dry_run=bool(wanted.validate_only))


async def _of_each(
    keys: Iterable[KeyT], ask: Callable[[KeyT], Awaitable[Iterable[RowT]]]
) -> Iterator[RowT]:
    """Return the rows of each key, in order, without keys that have vanished meanwhile."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask_limited(key: KeyT) -> list[RowT]:
        async with limit:
            try:
                return list(await ask(key))
            except (NotFound, UnknownTopic):
                return []

    found = await asyncio.gather(*map(ask_limited, keys))
    return (row for rows in found for row in rows)


def _failure(topic: str, error: V3Error | LeadlineError) -> TopicConfigFailure:
    if isinstance(error, V3Error):
        code, message = error.code.code, error.message
    else:
        code, message = code_of(error).code, message_of(error)
    return TopicConfigFailure(topic_name=topic, error_code=code, message=message)
