"""The table of all settings: names, types, defaults, units, limits, scopes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from leadline_common.settings.broker import BrokerSettings, TopicConfigs
from leadline_common.settings.controller import ControllerSettings
from leadline_common.settings.coordinator import CoordinatorSettings
from leadline_common.settings.fields import INT64_MAX, Scope, ServiceSettings

Owner = Literal["every service", "controller", "broker", "coordinator", "topic"]
"""The kind of service (or topic) that has a setting."""

_MODELS: Final[dict[Owner, type[BaseModel]]] = {
    "every service": ServiceSettings,
    "controller": ControllerSettings,
    "broker": BrokerSettings,
    "coordinator": CoordinatorSettings,
    "topic": TopicConfigs,
}
_UNITS: Final = {
    "_ms": "ms",
    "_bytes": "bytes",
    "_bytes_per_s": "bytes/s",
    "_per_s": "1/s",
    "_percent": "%",
    "_percentage": "%",
}
"""The units of settings by the end of their names."""
_NEAR: Final = 0.75
"""How similar names must be for a suggestion: a misspelt name, not merely a resembling one."""

_TYPE_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    `required` settings have no default. `scope` is where the setting can be changed at run time.
    `follows` is the service's setting that provides the default of a topic's. `aliases` are other
    accepted names. The value of a `sensitive` setting is never shown.
    """

    name: str
    type: str
    default: str
    required: bool
    unit: str
    owner: Owner
    scope: Scope
    meaning: str
    minimum: int | None
    maximum: int | None
    aliases: tuple[str, ...]
    follows: str
    sensitive: bool
    parser: TypeAdapter[Any]

    @property
    def dynamic(self) -> bool:
        """Whether it can be changed without a restart."""
        return self.scope != "read-only"


@cache
def settings_table() -> tuple[Setting, ...]:
    """Return every setting: of all services, of each one, and of topics."""
    shared = ServiceSettings.model_fields
    return tuple(
        _row(attribute, field, owner)
        for owner, model in _MODELS.items()
        for attribute, field in model.model_fields.items()
        if owner in ("every service", "topic") or attribute not in shared
    )


def _row(attribute: str, field: FieldInfo, owner: Owner) -> Setting:
    schema: Any = field.json_schema_extra
    maximum = _limit(field, "le")
    return Setting(
        name=dotted(attribute),
        type=_type_name(field.annotation),
        default="" if field.is_required() or field.default is None else text_of(field.default),
        required=field.is_required(),
        unit=next((unit for end, unit in _UNITS.items() if attribute.endswith(end)), ""),
        owner=owner,
        scope=schema["scope"],
        meaning=field.description or "",
        minimum=_limit(field, "ge"),
        maximum=None if maximum == INT64_MAX else maximum,
        aliases=tuple(schema.get("aliases", ())),
        follows=schema.get("follows", ""),
        sensitive=schema.get("sensitive", False),
        parser=_parser(field),
    )


def _parser(field: FieldInfo) -> TypeAdapter[Any]:
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind)


def _limit(field: FieldInfo, kind: str) -> int | None:
    return next((getattr(m, kind) for m in field.metadata if hasattr(m, kind)), None)


def _type_name(annotation: Any) -> str:
    options = get_args(annotation)
    if not options:
        return _TYPE_NAMES[annotation]
    if get_origin(annotation) is Literal:
        return " | ".join(options)
    return _TYPE_NAMES[next(option for option in options if option is not NoneType)]


def text_of(value: Any) -> str:
    """Return the text form of a value: `true`, `1000`, `json`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def dotted(attribute: str) -> str:
    """Return the name of a setting from that of its attribute."""
    return attribute.replace("_", ".")


def attribute_of(name: str) -> str:
    """Return the attribute of a setting from its name."""
    return name.replace(".", "_")


@cache
def known_settings(*, topics: bool) -> Mapping[str, Setting]:
    """Return the settings of topics, or of services, by name and by alias."""
    rows = [row for row in settings_table() if (row.owner == "topic") is topics]
    return {name: row for row in rows for name in (row.name, *row.aliases)}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelt name, for an error message; empty if none is near."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=_NEAR)
    return f"; did you mean {found[0]}?" if found else ""
