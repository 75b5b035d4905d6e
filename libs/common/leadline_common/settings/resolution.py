"""Which value of a setting is in force, and where it comes from: pure functions.

The field's precedence: topic > broker > cluster > static (what a service was
started with) > default. A topic's setting goes on, where the topic has none, with
the service's setting that it `follows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from leadline_common.settings.levels import Level
from leadline_common.settings.service import ServiceSettings
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
    """Where a value comes from, strongest first."""

    TOPIC = "topic"
    BROKER = "broker"
    CLUSTER = "cluster"
    STATIC = "static"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Layers:
    """What is set at each level: own names, values as text, as `check_configs` returns them.

    `static` is what a service was started with (`stated`). A level that has no
    say in a question is left empty.
    """

    topic: Mapping[str, str] = field(default_factory=dict)
    broker: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Synonym:
    """One value that a setting would have, if no stronger one were set."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True, slots=True)
class Resolved:
    """A setting with its value in force.

    `synonyms` are all values that are set for it, strongest first, and the
    default last; the first one is in force. A setting without a default that is
    not known here has no value and no synonyms.
    """

    setting: Setting
    synonyms: tuple[Synonym, ...]

    @property
    def value(self) -> str | None:
        """The value in force, as text; None where nothing says."""
        return self.synonyms[0].value if self.synonyms else None

    @property
    def default(self) -> str | None:
        """The default, as text; None for a setting that must be given."""
        last = self.synonyms[-1] if self.synonyms else None
        return last.value if last is not None and last.source is Source.DEFAULT else None

    @property
    def source(self) -> Source:
        """Where the value in force comes from."""
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


def resolve(setting: Setting, layers: Layers) -> Resolved:
    """Return a setting's value in force, with all that it was chosen from."""
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
    """Return every setting that has a meaning at a level, by name, each resolved.

    A topic has its own; a broker those that it goes by; the cluster those of all
    services.
    """
    rows = [row for row in settings_table() if _concerns(level, row)]
    return [resolve(row, layers) for row in sorted(rows, key=lambda row: row.name)]


def _concerns(level: Level, row: Setting) -> bool:
    if level == "broker":
        return row.owner in ("every service", "broker")
    return (row.owner == "topic") is (level == "topic")


def in_force(static: Settings, *dynamic: Mapping[str, str]) -> Settings:
    """Return a service's settings with the dynamic levels over what it was started with.

    `dynamic` are the levels, strongest first: for a broker `(broker, cluster)`, for
    a controller `(cluster,)`. Each must have passed `accept_configs` or
    `check_configs`; what another service goes by is passed over. The result is a
    new object, equal to `static` where nothing is set; attributes that cannot be
    changed while a service runs are never touched. A topic's own settings come over
    it (`parse_topic_configs`).
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
    """Return what a service was told at its start, by name.

    Defaults are left out, and so is what is sensitive: others are shown it.
    """
    known = known_settings(topics=False)
    values = {dotted(name): getattr(static, name) for name in sorted(static.model_fields_set)}
    return {
        name: text_of(value)
        for name, value in values.items()
        if value is not None and not known[name].sensitive
    }
