"""Reading settings from flags, environment and file, and the configs of topics from requests."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from leadline_client.errors import PolicyViolation
from leadline_common.settings.models import ServiceSettings, TopicConfigs
from leadline_common.settings.table import dotted, settings_table, text_of

Settings = TypeVar("Settings", bound=ServiceSettings)

ENV_PREFIX: Final = "LEADLINE_"
CONFIG_VARIABLE: Final = "LEADLINE_CONFIG"

_OTHER_VARIABLES: Final = frozenset({CONFIG_VARIABLE, "LEADLINE_BOOTSTRAP", "LEADLINE_DATA_DIR"})
# Kubernetes sets such variables for every Service, and a Service may well be named leadline-...
_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_HOST|(SERVICE_)?PORT(_.*)?)")
_NAMES: Final = tuple(row.name for row in settings_table() if row.scope != "topic")
_TOPIC_NAMES: Final = tuple(dotted(attribute) for attribute in TopicConfigs.model_fields)


class SettingsError(ValueError):
    """A setting is unknown, missing, or of the wrong type or range; the message names it."""


def load_settings(
    model: type[Settings],
    *,
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    config: Path | None = None,
) -> Settings:
    """Return the settings of one service from all sources.

    `flags` are the `--set` pairs by dotted name; `config` is the TOML file of
    `--config`, and `LEADLINE_CONFIG` names one otherwise. Raises SettingsError.
    """
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    layers = (
        {} if config is None else _read_file(config),
        _from_environment(environment),
        dict(flags),
    )
    values: dict[str, Any] = {}
    for layer in layers:
        for name in layer:
            _check_known(name)
        values |= {_attribute(name): value for name, value in layer.items()}
    values = {name: value for name, value in values.items() if name in model.model_fields}
    try:
        return model.model_validate(values)
    except ValidationError as problem:
        raise SettingsError(_first_problem(problem)) from None


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def _read_file(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SettingsError(f"cannot read the settings of {path}: {problem}") from problem
    return dict(_flatten(document))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    # TOML reads a dotted key as nested tables; [zookeeper.session] is as good a way to write it.
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for variable, value in environment.items():
        if not variable.startswith(ENV_PREFIX) or variable in _OTHER_VARIABLES:
            continue
        name = variable.removeprefix(ENV_PREFIX).lower().replace("_", ".")
        if name in _NAMES or not _SERVICE_LINK.fullmatch(variable):
            found[name] = value
    return found


def _check_known(name: str) -> None:
    if name not in _NAMES:
        raise SettingsError(f"unknown setting {name}{_nearest(name, _NAMES)}")


def _nearest(name: str, known: Collection[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f"; did you mean {found[0]}?" if found else ""


def _first_problem(problem: ValidationError) -> str:
    first = problem.errors(include_url=False)[0]
    name = dotted(str(first["loc"][0]))
    if first["type"] == "missing":
        return f"{name} is required"
    return f"{name}: {first['msg']}, not {first['input']!r}"


def parse_topic_configs(configs: Mapping[str, Any]) -> TopicConfigs:
    """Return a topic's configs with their types.

    Raises PolicyViolation, naming the config, for an unknown name or a bad value.
    """
    for name in configs:
        if name not in _TOPIC_NAMES:
            hint = _nearest(name, _TOPIC_NAMES)
            raise PolicyViolation(f"unknown topic config {name}{hint}", config=name)
    try:
        return TopicConfigs.model_validate({_attribute(k): v for k, v in configs.items()})
    except ValidationError as problem:
        name = dotted(str(problem.errors()[0]["loc"][0]))
        raise PolicyViolation(_first_problem(problem), config=name) from None


def validate_topic_configs(configs: Mapping[str, Any]) -> dict[str, str]:
    """Return a topic's configs as they are stored: strings in one spelling.

    Raises PolicyViolation, naming the config, for an unknown name or a bad value.
    """
    parsed = parse_topic_configs(configs)
    return {name: text_of(getattr(parsed, _attribute(name))) for name in configs}
