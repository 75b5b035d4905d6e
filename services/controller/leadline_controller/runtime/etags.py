"""The ETags of single resources: no request overwrites a change unknown to its caller.

An ETag changes with what requests change in the resource, not with everything shown
beside it: a topic's stays the same when leaders change.
"""

from __future__ import annotations

from dataclasses import dataclass

from leadline_client.errors import LeadlineError, StaleVersion
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.engine.dynamic_configs import (
    CLUSTER,
    ConfigResource,
    DynamicConfigs,
)
from leadline_controller.runtime.engine.guard import Condition, ResourceName
from leadline_controller.runtime.reassignment.task_store import TaskStore

_CONFIGS = {
    "topic configs": ConfigResource("topic"),
    "broker configs": ConfigResource("broker"),
    "configs": CLUSTER,
}


@dataclass(eq=False)
class ETags:
    """The ETags of one term."""

    image: ClusterImage
    configs: DynamicConfigs
    metadata: MetadataView
    tasks: TaskStore

    def of(self, resource: ResourceName) -> str | None:
        """Return the ETag of a resource; None if there is no such resource."""
        try:
            return self._of(*resource)
        except (LeadlineError, ValueError):  # ValueError: a broker id that is not a number
            return None

    def check(self, condition: Condition) -> None:
        """Refuse a request whose condition does not hold; its handler refuses missing resources.

        Raises:
            StaleVersion: the resource has changed since the caller read it.

        """
        current = self.of(condition.resource)
        if current is None or condition.etags is None or current in condition.etags:
            return
        kind, name = condition.resource
        what = f"{kind} {name}".strip()
        raise StaleVersion(
            f"{what} has changed: its ETag is {current}; read it again before changing it",
            etag=current,
        )

    def _of(self, kind: str, name: str) -> str | None:
        found: str | None = None
        match kind:
            case "topic":
                topic = self.image.topics.get(name)
                found = f"{topic.topic_id}-{topic.version}" if topic else None
            case "broker":
                broker = self.image.brokers.get(int(name))
                found = str(broker.incarnation) if broker else None
            case "task":
                found = str(self.tasks.find(name).version)
            case "user":  # The controller keeps none: routes and handlers know what they read.
                found = None
            case "cluster":
                found = self.metadata.etag()
            case _:
                return self._of_configs(_CONFIGS[kind]._replace(name=name))
        return f'"{found}"' if found else None

    def _of_configs(self, resource: ConfigResource) -> str:
        self.configs.find(resource)
        return self.configs.etag(resource, self.configs.version(resource))
