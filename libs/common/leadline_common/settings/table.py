"""The settings as a table: names, types, defaults, units, scopes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from leadline_common.settings.models import (
    BrokerSettings,
    ControllerSettings,
    ServiceSettings,
    TopicConfigs,
)

Scope = Literal["controller", "broker", "both", "topic"]
_TYPE_NAMES: Final = {str: "string", int: "integer", bool: "boolean"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: what `docs/settings.md` and `leadline` show of a setting.

    `required` settings have no default. `dynamic` ones may be changed without a
    restart.
    """

    name: str
    type: str
    default: str
    required: bool
    unit: str
    scope: Scope
    dynamic: bool
    meaning: str


def settings_table() -> list[Setting]:
    """Return every setting: of both services, of the controller, of the broker, of topics."""
    shared = ServiceSettings.model_fields
    rows = list(_rows(ServiceSettings, "both", skip=frozenset()))
    rows += _rows(ControllerSettings, "controller", skip=frozenset(shared))
    rows += _rows(BrokerSettings, "broker", skip=frozenset(shared))
    rows += _rows(TopicConfigs, "topic", skip=frozenset())
    return rows


def _rows(model: type[BaseModel], scope: Scope, skip: frozenset[str]) -> Iterator[Setting]:
    for attribute, field in model.model_fields.items():
        if attribute not in skip:
            yield _row(attribute, field, scope)


def _row(attribute: str, field: FieldInfo, scope: Scope) -> Setting:
    facts = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return Setting(
        name=dotted(attribute),
        type=_type_name(field.annotation),
        default="" if field.is_required() or field.default is None else text_of(field.default),
        required=field.is_required(),
        unit=str(facts["unit"]),
        scope=scope,
        dynamic=bool(facts["dynamic"]),
        meaning=field.description or "",
    )


def _type_name(annotation: Any) -> str:
    options = get_args(annotation)
    if not options:
        return _TYPE_NAMES[annotation]
    if get_origin(annotation) is Literal:
        return " | ".join(options)
    return _TYPE_NAMES[next(option for option in options if option is not NoneType)]


def text_of(value: Any) -> str:
    """Return a value as settings are written: `true`, `1000`, `json`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def dotted(attribute: str) -> str:
    """Return the name of a setting from that of its attribute."""
    return attribute.replace("_", ".")
