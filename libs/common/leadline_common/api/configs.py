"""Configuration of the cluster, of brokers and of topics, changed while they run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol, TypeVar

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.responses import Response

from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    NoController,
    NotFound,
    PolicyViolation,
    StaleVersion,
    StoreOutcomeUnknown,
    UnknownTopic,
)
from leadline_common.api.models import example
from leadline_common.api.routes import BrokerId, TopicName, answering_administration
from leadline_common.http.errors import error_responses
from leadline_common.settings import Level

TAG = "configs"
TAGS = ({"name": TAG, "description": "Settings that change while the cluster runs."},)

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


class Synonym(BaseModel):
    """A value that is set for a setting, and where."""

    name: str = Field(description="The name under which it is set there")
    value: str | None = Field(description="null where it is sensitive")
    source: Source


class Config(BaseModel):
    """A setting with its value in force."""

    name: str
    value: str | None = Field(description="In force; null where it is sensitive or not known here")
    source: Source = Field(description="Where the value in force is set, closest first")
    default: str | None = Field(description="null where it must be given at the start")
    type: str
    unit: str
    scope: Literal["read-only", "cluster-wide", "per-broker", "topic"]
    read_only: bool = Field(description="Whether it cannot be set here while services run")
    sensitive: bool = Field(description="Whether its value is never shown")
    minimum: int | None
    maximum: int | None
    meaning: str
    aliases: list[str] = Field(description="Names that are accepted in its place")
    synonyms: list[Synonym] = Field(description="All that is set for it; the first is in force")


class Configs(BaseModel):
    """The settings of a topic, of a broker, or of the cluster, by name."""

    model_config = example({**_OWNER, "version": 3, "configs": [_CONFIG], "problems": {}})

    level: Level
    name: str = Field(description="The topic, or the broker's id; empty for the cluster")
    version: int = Field(
        description="Of what is set at this level itself; the ETag names it, -1 before any change"
    )
    configs: list[Config]
    problems: dict[str, str] = Field(
        description="What is set here by hand and cannot be obeyed, by name, with the reason"
    )


class ConfigChanges(BaseModel):
    """Settings to set and to remove, all or none; a removed one has the value behind it again."""

    model_config = example({"set": {"retention.ms": 86400000}, "remove": ["min.insync.replicas"]})

    set: dict[str, str | int | bool] = Field(default_factory=dict)
    remove: list[str] = Field(default_factory=list)
    dry_run: bool = Field(default=False, description="Only check; change nothing")


class ChangedConfig(BaseModel):
    """What became of one setting at this level; null where it is not set."""

    name: str
    before: str | None
    after: str | None


class AlteredConfigs(BaseModel):
    """What was changed (or, on a dry run, would be) at this level."""

    model_config = example({**_OWNER, "version": 4, "changed": _CHANGED, "dry_run": False})

    level: Level
    name: str
    version: int
    changed: list[ChangedConfig] = Field(description="Empty where all was so already")
    dry_run: bool


class ConfigAdministration(Protocol):
    """What a controller answers about configuration."""

    def read_configs(self, level: Level, name: str) -> tuple[Configs, str]:
        """Return all settings of a level, and their ETag."""

    async def alter_configs(
        self, level: Level, name: str, changes: ConfigChanges
    ) -> tuple[AlteredConfigs, str]:
        """Set and remove settings of a level, all or none; return what changed, and the ETag."""


Answering = Annotated[ConfigAdministration, Depends(answering_administration)]

_UNCERTAIN = (StaleVersion, StoreOutcomeUnknown, ConnectionLost)


def add_routes(router: APIRouter) -> None:
    """Add the routes of this area."""
    _add_cluster(router)
    _add_brokers(router)
    _add_topics(router)


def _reading(*errors: type[LeadlineError]) -> dict[str, Any]:
    return {"tags": [TAG], "responses": error_responses(NoController, *errors)}


def _changing(name: str, *errors: type[LeadlineError]) -> dict[str, Any]:
    """Document a change whose example sets one setting that exists at its level."""
    shown = {"application/json": {"example": {"set": {name: 86_400_000}, "remove": []}}}
    documented = _reading(PolicyViolation, *errors, *_UNCERTAIN)
    return documented | {"openapi_extra": {"requestBody": {"content": shown}}}


def _tagged(response: Response, answer: tuple[_Body, str]) -> _Body:
    body, response.headers["ETag"] = answer
    return body


def _add_cluster(router: APIRouter) -> None:
    @router.get("/configs", summary="The settings of the cluster", **_reading())
    async def read_cluster_configs(answering: Answering, response: Response) -> Configs:
        """Read every setting of every service, with its value in force.

        Where brokers were started with different values, the live one with the lowest id
        speaks for all: ask each broker's own settings.
        """
        return _tagged(response, answering.read_configs("cluster", ""))

    @router.patch(
        "/configs", summary="Change settings of the cluster", **_changing("log.retention.ms")
    )
    async def alter_cluster_configs(
        answering: Answering, response: Response, body: ConfigChanges
    ) -> AlteredConfigs:
        """Set and remove settings for the whole cluster, all or none.

        They are in force within moments, without a restart, unless a broker or a topic
        has its own.
        """
        return _tagged(response, await answering.alter_configs("cluster", "", body))


def _add_brokers(router: APIRouter) -> None:
    @router.get(
        "/brokers/{broker_id}/configs", summary="The settings of a broker", **_reading(NotFound)
    )
    async def read_broker_configs(
        answering: Answering, response: Response, broker_id: BrokerId
    ) -> Configs:
        """Read every setting that a broker goes by, with its value in force.

        What it was started with is known while it is live.
        """
        return _tagged(response, answering.read_configs("broker", str(broker_id)))

    @router.patch(
        "/brokers/{broker_id}/configs",
        summary="Change settings of a broker",
        **_changing("log.retention.ms", NotFound),
    )
    async def alter_broker_configs(
        answering: Answering, response: Response, broker_id: BrokerId, body: ConfigChanges
    ) -> AlteredConfigs:
        """Set and remove settings for one broker, all or none; it may be down."""
        return _tagged(response, await answering.alter_configs("broker", str(broker_id), body))


def _add_topics(router: APIRouter) -> None:
    @router.get(
        "/topics/{topic}/configs", summary="The settings of a topic", **_reading(UnknownTopic)
    )
    async def read_topic_configs(
        answering: Answering, response: Response, topic: TopicName
    ) -> Configs:
        """Read every setting that a topic may have of its own, with its value in force."""
        return _tagged(response, answering.read_configs("topic", topic))

    @router.patch(
        "/topics/{topic}/configs",
        summary="Change settings of a topic",
        **_changing("retention.ms", UnknownTopic),
    )
    async def alter_topic_configs(
        answering: Answering, response: Response, topic: TopicName, body: ConfigChanges
    ) -> AlteredConfigs:
        """Set and remove settings for one topic, all or none.

        Enabling unclean elections gives its leaderless partitions a leader at once.
        """
        return _tagged(response, await answering.alter_configs("topic", topic, body))
