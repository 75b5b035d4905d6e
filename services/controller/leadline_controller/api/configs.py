"""Config routes, served from the configs in force at the active controller."""

from __future__ import annotations

from leadline_common.api import configs as models
from leadline_common.settings import Level, Resolved, Synonym, describe, may_be_set
from leadline_controller.runtime.engine.dynamic_configs import AlterConfigs, ConfigResource
from leadline_controller.runtime.service import ControllerService


class ConfigEndpoints:
    """Implements `leadline_common.api.configs.ConfigAdministration`."""

    _controller: ControllerService

    def read_configs(self, level: Level, name: str) -> tuple[models.ConfigsBody, str]:
        """Return all configs of a resource, and their ETag."""
        resource = ConfigResource(level, name)
        configs = self._controller.active_controller().configs
        configs.find(resource)
        problems = dict(configs.accepted(resource).problems)
        shown = [_config(level, found) for found in describe(level, configs.layers(resource))]
        version = configs.version(resource)
        body = models.ConfigsBody(
            level=level, name=name, version=version, configs=shown, problems=problems
        )
        return body, configs.etag(resource, version)

    async def alter_configs(
        self, level: Level, name: str, changes: models.ConfigChanges
    ) -> tuple[models.AlteredConfigsBody, str]:
        """Set and remove configs of a resource atomically; return the changes and the new ETag."""
        resource = ConfigResource(level, name)
        altered = await self._controller.ask(
            AlterConfigs(resource, changes.set, tuple(changes.remove), dry_run=changes.dry_run)
        )
        before, after = altered.before, altered.after
        changed = [
            models.ChangedConfig(name=name, before=before.get(name), after=after.get(name))
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ]
        body = models.AlteredConfigsBody(
            level=level,
            name=resource.name,
            version=altered.version,
            changed=changed,
            dry_run=changes.dry_run,
        )
        return body, altered.etag


def _config(level: Level, found: Resolved) -> models.ConfigBody:
    setting = found.setting
    hidden = setting.sensitive
    return models.ConfigBody(
        name=setting.name,
        value=None if hidden else found.value,
        source=found.source.value,
        default=None if hidden else found.default,
        type=setting.type,
        unit=setting.unit,
        scope=setting.scope,
        read_only=not may_be_set(level, setting),
        sensitive=hidden,
        minimum=setting.minimum,
        maximum=setting.maximum,
        meaning=setting.meaning,
        aliases=list(setting.aliases),
        synonyms=[_synonym(synonym, hidden=hidden) for synonym in found.synonyms],
    )


def _synonym(synonym: Synonym, *, hidden: bool) -> models.SynonymBody:
    return models.SynonymBody(
        name=synonym.name,
        value=None if hidden else synonym.value,
        source=synonym.source.value,
    )
