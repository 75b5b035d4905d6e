"""What can happen to the dynamic settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from leadline_common import znodes
from leadline_common.settings import Level
from leadline_controller.runtime.engine.events import Hint, Request


class ConfigResource(NamedTuple):
    """Whose settings: a topic's, by its name; a broker's, by its id; or the cluster's."""

    level: Level
    name: str = ""

    @property
    def path(self) -> str:
        """The node that they are kept in."""
        match self.level:
            case "topic":
                return znodes.topic_config_path(self.name)
            case "broker":
                return znodes.broker_config_path(int(self.name))
            case "cluster":
                return znodes.CONFIG_CLUSTER

    @property
    def about(self) -> Mapping[str, Any]:
        """How the audit names it."""
        match self.level:
            case "topic":
                return {"topic": self.name}
            case "broker":
                return {"broker": int(self.name)}
            case "cluster":
                return {"config": self.level}


CLUSTER = ConfigResource("cluster")


class AlteredConfigs(NamedTuple):
    """What a level's settings were and are, or would be; version and ETag are of the present."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    version: int
    etag: str


@dataclass(frozen=True, slots=True)
class ConfigsChanged(Hint):
    """The watch on settings of the cluster or of a broker fired."""


@dataclass(frozen=True, slots=True, eq=False)
class AlterConfigs(Request[AlteredConfigs]):
    """An operator sets and removes settings of one level, all or none."""

    resource: ConfigResource
    configs: Mapping[str, Any]
    remove: tuple[str, ...]
    dry_run: bool

    @property
    def about(self) -> Mapping[str, Any]:
        """Whose settings."""
        return self.resource.about
