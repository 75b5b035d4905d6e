"""Reading and changing settings at the active controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from leadline_broker.api.v3.changes import refused_by_controller
from leadline_broker.api.v3.errors import NOT_FOUND, REFUSED, V3Error
from leadline_broker.api.v3.models.configs import ConfigChange, KafkaConfig
from leadline_broker.api.v3.routes import ClusterView
from leadline_common.api.configs import (
    AlteredConfigsBody,
    ConfigBody,
    ConfigChanges,
    ConfigsBody,
)
from leadline_common.http.service_queries import path_of

ConfigT = TypeVar("ConfigT", bound=KafkaConfig)


class Target(NamedTuple):
    """What has settings; those of the cluster may have any name until they are set."""

    path: str
    is_cluster: bool = False


def of_cluster() -> Target:
    """Return the settings of all brokers."""
    return Target(path_of("configs"), is_cluster=True)


def of_broker(broker_id: int) -> Target:
    """Return the settings of a broker."""
    return Target(path_of("brokers", broker_id, "configs"))


def of_topic(topic: str) -> Target:
    """Return the settings of a topic."""
    return Target(path_of("topics", topic, "configs"))


async def read(cluster: ClusterView, target: Target) -> Sequence[ConfigBody]:
    """Return all settings of a target.

    Raises:
        UnknownTopic, NotFound: there is no such topic or broker.

    """
    return (await cluster.context.controller.get(target.path, ConfigsBody)).configs


def find_config(configs: Sequence[ConfigT], name: str) -> ConfigT:
    """Return one of some settings.

    Raises:
        V3Error: there is none of this name.

    """
    for config in configs:
        if config.name == name:
            return config
    raise V3Error(NOT_FOUND, f"there is no setting {name}")


def changes_of(wanted: Sequence[ConfigChange]) -> ConfigChanges:
    """Return changes as the controller understands them; they are sets unless stated otherwise.

    Raises:
        V3Error: a setting is named twice, or is to be set to nothing.

    """
    changes = ConfigChanges()
    for one in wanted:
        if one.name in changes.set or one.name in changes.remove:
            raise V3Error(REFUSED, f"the setting {one.name} is named twice")
        if one.operation == "DELETE":
            changes.remove.append(one.name)
        elif one.value is None:
            raise V3Error(REFUSED, f"the setting {one.name} has no value")
        else:
            changes.set[one.name] = one.value
    return changes


async def set_value(cluster: ClusterView, target: Target, name: str, value: str | None) -> None:
    """Set one setting.

    Raises:
        V3Error: there is no such setting, or the controller refuses the value.

    """
    await alter(cluster, target, changes_of([ConfigChange(name=name, value=value)]))


async def reset(cluster: ClusterView, target: Target, name: str) -> None:
    """Reset one setting.

    Raises:
        V3Error: there is no such setting.

    """
    await alter(cluster, target, changes_of([ConfigChange(name=name, operation="DELETE")]))


async def alter(
    cluster: ClusterView,
    target: Target,
    changes: ConfigChanges,
    *,
    dry_run: bool = False,
    part: str | None = None,
) -> None:
    """Set and reset settings of a target, all or none.

    `part` tells the changes of one request apart, if there are several.

    Raises:
        V3Error: there is no such setting, or the controller refuses a value.

    """
    if not target.is_cluster:
        known = {name for one in await read(cluster, target) for name in (one.name, *one.aliases)}
        for name in (*changes.set, *changes.remove):
            if name not in known:
                raise V3Error(NOT_FOUND, f"there is no setting {name}")
    with refused_by_controller():
        await cluster.context.controller.change(
            "PATCH",
            target.path,
            AlteredConfigsBody,
            body=changes.model_copy(update={"dry_run": dry_run}),
            headers=cluster.idempotency if part is None else cluster.idempotency_of(part),
        )
