"""Resolves the effective value of a setting, and its source. Pure.

The precedence is Kafka's: topic > broker > cluster > static (flags, environment, file) > default.
A topic without a value of its own has that of the service's setting that it `follows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from leadline_common.settings.fields import ServiceSettings
from leadline_common.settings.levels import Level
from leadline_common.settings.table import (
    Setting,
    attribute_of,
    dotted,
    known_settings,
    settings_table,
    text_of,
)

Settings = TypeVar("Settings", bound=ServiceSettings)


class Source(StrEnum):
    """The source of a value, in the order of precedence."""

    TOPIC = "topic"
    BROKER = "broker"
    CLUSTER = "cluster"
    STATIC = "static"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Layers:
    """The settings of each level by own name, as `check_configs` returns them.

    `static` are the explicit settings of a service's start (`stated`). Levels that do not apply
    are empty.
    """

    topic: Mapping[str, str] = field(default_factory=dict)
    broker: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Synonym:
    """One value that is set for a setting, and its source (Kafka's ConfigSynonym)."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True, slots=True)
class Resolved:
    """A setting with its effective value.

    `synonyms` are all values that are set for it in the order of precedence, the default last; the
    first is effective. A required setting whose value is unknown here has no synonyms.
    """

    setting: Setting
    synonyms: tuple[Synonym, ...]

    @property
    def value(self) -> str | None:
        """The effective value as text; None if it is unknown."""
        return self.synonyms[0].value if self.synonyms else None

    @property
    def default(self) -> str | None:
        """The default as text; None for a required setting."""
        last = self.synonyms[-1] if self.synonyms else None
        return last.value if last is not None and last.source is Source.DEFAULT else None

    @property
    def source(self) -> Source:
        """The source of the effective value."""
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


def resolve(setting: Setting, layers: Layers) -> Resolved:
    """Return a setting's effective value and its synonyms."""
    found = []
    service = setting
    if setting.owner == "topic":
        service = known_settings(topics=False)[setting.follows]
        if setting.name in layers.topic:
            found.append(Synonym(setting.name, layers.topic[setting.name], Source.TOPIC))
    for source, level in (
        (Source.BROKER, layers.broker),
        (Source.CLUSTER, layers.cluster),
        (Source.STATIC, layers.static),
    ):
        if service.name in level:
            found.append(Synonym(service.name, level[service.name], source))
    if not service.required:
        found.append(Synonym(service.name, service.default, Source.DEFAULT))
    return Resolved(setting, tuple(found))


def describe(level: Level, layers: Layers) -> list[Resolved]:
    """Return every setting that applies to a level, resolved and sorted by name.

    A topic has its own settings, a broker those of brokers, and the cluster those of all services.
    """
    rows = [row for row in settings_table() if _applies_to(level, row)]
    return [resolve(row, layers) for row in sorted(rows, key=lambda row: row.name)]


def _applies_to(level: Level, row: Setting) -> bool:
    if level == "broker":
        return row.owner in ("every service", "broker")
    return (row.owner == "topic") is (level == "topic")


def in_force(static: Settings, *dynamic: Mapping[str, str]) -> Settings:
    """Return a service's effective settings: its static ones, overridden by the dynamic levels.

    `dynamic` are the levels in the order of precedence: for a broker `(broker, cluster)`, for a
    controller `(cluster,)`. Each must come from `accept_configs` or `check_configs`. Settings of
    other services are ignored, and read-only settings never change. The result is a new object. A
    topic's own settings override it (`parse_topic_configs`).
    """
    chosen: dict[str, str] = {}
    for level in reversed(dynamic):
        chosen |= level
    known = known_settings(topics=False)
    values = {
        attribute_of(name): known[name].parser.validate_python(text)
        for name, text in chosen.items()
        if attribute_of(name) in type(static).model_fields and known[name].dynamic
    }
    return static.model_copy(update=values)


def stated(static: ServiceSettings) -> dict[str, str]:
    """Return the explicit static settings of a service, by name.

    Defaults and sensitive settings are left out, because other services show the result.
    """
    known = known_settings(topics=False)
    values = {dotted(name): getattr(static, name) for name in sorted(static.model_fields_set)}
    return {
        name: text_of(value)
        for name, value in values.items()
        if value is not None and not known[name].sensitive
    }
