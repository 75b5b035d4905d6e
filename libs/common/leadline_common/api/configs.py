"""Dynamic configuration of the cluster, of brokers and of topics."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol, TypeVar

from fastapi import Depends
from pydantic import BaseModel, Field
from starlette.responses import Response

from leadline_client.errors import (
    LeadlineError,
    NotFound,
    PolicyViolation,
    StaleVersion,
    UnknownTopic,
)
from leadline_common.api.models import example
from leadline_common.api.routes import (
    BrokerId,
    TopicName,
    get_administration,
    read_errors,
    write_errors,
)
from leadline_common.http.router import ServiceRouter
from leadline_common.settings import Level

TAG = "configs"

_Body = TypeVar("_Body")
Source = Literal["topic", "broker", "cluster", "static", "default"]

_SYNONYMS = [
    {"name": "retention.ms", "value": "86400000", "source": "topic"},
    {"name": "log.retention.ms", "value": "604800000", "source": "default"},
]
_CONFIG = {
    "name": "retention.ms",
    "value": "86400000",
    "source": "topic",
    "default": "604800000",
    "type": "integer",
    "unit": "ms",
    "scope": "topic",
    "read_only": False,
    "sensitive": False,
    "minimum": -1,
    "maximum": None,
    "meaning": "As `log.retention.ms`, for one topic.",
    "aliases": [],
    "synonyms": _SYNONYMS,
}
_OWNER = {"level": "topic", "name": "orders"}
_CHANGED = [
    {"name": "min.insync.replicas", "before": "1", "after": None},
    {"name": "retention.ms", "before": None, "after": "86400000"},
]


class SynonymBody(BaseModel):
    """A value of a setting at one level."""

    name: str = Field(description="The setting's name at that level")
    value: str | None = Field(description="null if it is sensitive")
    source: Source


class ConfigBody(BaseModel):
    """A setting with its value in force."""

    name: str
    value: str | None = Field(
        description="The value in force; null if it is sensitive, or not known to the controller"
    )
    source: Source = Field(description="The level at which the value in force is set")
    default: str | None = Field(description="null if the setting is required at start-up")
    type: str
    unit: str
    scope: Literal["read-only", "cluster-wide", "per-broker", "topic"]
    read_only: bool = Field(description="True if it cannot be changed at this level at run time")
    sensitive: bool = Field(description="True if its value is never shown")
    minimum: int | None
    maximum: int | None
    meaning: str
    aliases: list[str] = Field(description="Other names that are accepted")
    synonyms: list[SynonymBody] = Field(
        description="Its values at all levels; the first is in force"
    )


class ConfigsBody(BaseModel):
    """The settings of a topic, of a broker, or of the cluster, by name."""

    model_config = example({**_OWNER, "version": 3, "configs": [_CONFIG], "problems": {}})

    level: Level
    name: str = Field(description="The topic, or the broker's id; empty for the cluster")
    version: int = Field(
        description="The version of the settings at this level, as in the ETag; -1 before any "
        "change"
    )
    configs: list[ConfigBody]
    problems: dict[str, str] = Field(
        description="Values written directly into ZooKeeper that are invalid: the reason by name"
    )


class ConfigChanges(BaseModel):
    """Settings to set and to remove, all or none.

    A removed setting takes the value of the next level.
    """

    model_config = example({"set": {"retention.ms": 86400000}, "remove": ["min.insync.replicas"]})

    set: dict[str, str | int | bool] = Field(default_factory=dict)
    remove: list[str] = Field(default_factory=list)
    dry_run: bool = Field(default=False, description="Validate, but change nothing")


class ChangedConfig(BaseModel):
    """One setting before and after the change; null if it is not set at this level."""

    name: str
    before: str | None
    after: str | None


class AlteredConfigsBody(BaseModel):
    """The settings that were changed at this level, or that a dry run would change."""

    model_config = example({**_OWNER, "version": 4, "changed": _CHANGED, "dry_run": False})

    level: Level
    name: str
    version: int
    changed: list[ChangedConfig] = Field(description="Empty if there was nothing to change")
    dry_run: bool


class ConfigAdministration(Protocol):
    """What a controller answers about configuration."""

    def read_configs(self, level: Level, name: str) -> tuple[ConfigsBody, str]:
        """Return all settings of a topic, a broker or the cluster, and their ETag."""

    async def alter_configs(
        self, level: Level, name: str, changes: ConfigChanges
    ) -> tuple[AlteredConfigsBody, str]:
        """Set and remove settings, all or none; return the changes and the new ETag."""


Controller = Annotated[ConfigAdministration, Depends(get_administration)]


def add_routes(router: ServiceRouter) -> None:
    """Add the routes of dynamic configuration."""
    _add_cluster_and_brokers(router)
    _add_topics(router)


def _change(name: str, *errors: type[LeadlineError]) -> dict[str, Any]:
    """Document a change whose example sets `name`, a setting that exists at its level."""
    example = {"application/json": {"example": {"set": {name: 86_400_000}, "remove": []}}}
    return {
        "tags": [TAG],
        "responses": write_errors(PolicyViolation, *errors, StaleVersion),
        "openapi_extra": {"requestBody": {"content": example}},
    }


def _with_etag(response: Response, answer: tuple[_Body, str]) -> _Body:
    body, response.headers["ETag"] = answer
    return body


def _add_cluster_and_brokers(router: ServiceRouter) -> None:
    @router.get(
        "/configs", tags=[TAG], summary="Get the cluster's settings", responses=read_errors()
    )
    async def read_cluster_configs(controller: Controller, response: Response) -> ConfigsBody:
        """Return every setting of every service, with its value in force.

        Where brokers were started with different values, this is the value of the live
        broker with the lowest id; `GET /v1/brokers/{broker_id}/configs` gives the others.
        """
        return _with_etag(response, controller.read_configs("cluster", ""))

    @router.patch(
        "/configs", summary="Change the cluster's settings", **_change("log.retention.ms")
    )
    async def alter_cluster_configs(
        controller: Controller, response: Response, body: ConfigChanges
    ) -> AlteredConfigsBody:
        """Set and remove settings of the whole cluster, all or none.

        Changes take effect within moments and without a restart. A value of a broker or a
        topic overrides that of the cluster.
        """
        return _with_etag(response, await controller.alter_configs("cluster", "", body))

    @router.get(
        "/brokers/{broker_id}/configs",
        tags=[TAG],
        summary="Get a broker's settings",
        responses=read_errors(NotFound),
    )
    async def read_broker_configs(
        controller: Controller, response: Response, broker_id: BrokerId
    ) -> ConfigsBody:
        """Return every setting of a broker, with its value in force.

        The values that the broker was started with are known only while it is live.
        """
        return _with_etag(response, controller.read_configs("broker", str(broker_id)))

    @router.patch(
        "/brokers/{broker_id}/configs",
        summary="Change a broker's settings",
        **_change("log.retention.ms", NotFound),
    )
    async def alter_broker_configs(
        controller: Controller, response: Response, broker_id: BrokerId, body: ConfigChanges
    ) -> AlteredConfigsBody:
        """Set and remove settings of one broker, all or none; the broker may be down."""
        return _with_etag(response, await controller.alter_configs("broker", str(broker_id), body))


def _add_topics(router: ServiceRouter) -> None:
    @router.get(
        "/topics/{topic}/configs",
        tags=[TAG],
        summary="Get a topic's settings",
        responses=read_errors(UnknownTopic),
    )
    async def read_topic_configs(
        controller: Controller, response: Response, topic: TopicName
    ) -> ConfigsBody:
        """Return every setting that a topic can have, with its value in force."""
        return _with_etag(response, controller.read_configs("topic", topic))

    @router.patch(
        "/topics/{topic}/configs",
        summary="Change a topic's settings",
        **_change("retention.ms", UnknownTopic),
    )
    async def alter_topic_configs(
        controller: Controller, response: Response, topic: TopicName, body: ConfigChanges
    ) -> AlteredConfigsBody:
        """Set and remove settings of one topic, all or none.

        Enabling unclean elections immediately elects leaders for its partitions without one.
        """
        return _with_etag(response, await controller.alter_configs("topic", topic, body))
