"""The ETags of single resources: what an operator saw, named, so that nobody else's change is lost.

An ETag changes with what requests change of the resource, not with everything that
is shown beside it: a topic's stays while leaders come and go.
"""

from __future__ import annotations

from collections.abc import Callable

from leadline_client.errors import LeadlineError, StaleVersion
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.engine.config_events import CLUSTER, ConfigResource
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.guard import Condition, Named

_CONFIGS = {
    "topic configs": ConfigResource("topic"),
    "broker configs": ConfigResource("broker"),
    "configs": CLUSTER,
}


class ETags:
    """The ETags of one term. `task_version` returns that of a task's node, or raises."""

    def __init__(
        self, desk: EventContext, metadata: MetadataView, task_version: Callable[[str], int]
    ) -> None:
        self._desk = desk
        self._metadata = metadata
        self._task_version = task_version

    def of(self, resource: Named) -> str | None:
        """Return the ETag of a resource; None where there is no such resource."""
        try:
            return self._of(*resource)
        except (LeadlineError, ValueError):  # also a broker's id that is no number
            return None

    def check(self, condition: Condition) -> None:
        """Refuse a request whose condition does not hold; what is not there is refused elsewhere.

        Raises:
            StaleVersion: the resource has changed since the caller looked.

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
                topic = self._desk.image.topics.get(name)
                found = f"{topic.topic_id}-{topic.version}" if topic else None
            case "broker":
                broker = self._desk.image.brokers.get(int(name))
                found = str(broker.incarnation) if broker else None
            case "task":
                found = str(self._task_version(name))
            case "cluster":
                found = self._metadata.etag()
            case _:
                return self._of_configs(_CONFIGS[kind]._replace(name=name))
        return f'"{found}"' if found else None

    def _of_configs(self, resource: ConfigResource) -> str:
        configs = self._desk.configs
        configs.find(resource)
        return configs.etag(resource, configs.version(resource))
