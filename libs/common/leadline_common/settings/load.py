"""Loads the static settings of a service from flags, environment and a TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from leadline_common.identity import KINDS, Kind
from leadline_common.settings.fields import ServiceSettings
from leadline_common.settings.table import attribute_of, dotted, known_settings, nearest

Settings = TypeVar("Settings", bound=ServiceSettings)

ENV_PREFIX: Final = "LEADLINE_"
CONFIG_VARIABLE: Final = "LEADLINE_CONFIG"

_OTHER_VARIABLES: Final = frozenset(
    {
        CONFIG_VARIABLE,
        "LEADLINE_BOOTSTRAP",
        "LEADLINE_CA_FILE",
        "LEADLINE_CERTIFICATE_FILE",
        "LEADLINE_DATA_DIR",
        "LEADLINE_TOKEN",
        "LEADLINE_TOKEN_FILE",
    }
)
# Kubernetes sets such variables for each Service, whose name may start with leadline-.
_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_HOST|(SERVICE_)?PORT(_.*)?)")


class SettingsError(ValueError):
    """A setting is unknown, missing or invalid; the message names it."""


def load_settings(
    model: type[Settings],
    *,
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    config: Path | None = None,
) -> Settings:
    """Return the settings of one service from all sources.

    Flags override the environment, which overrides the file. `flags` are the `--set` pairs by
    dotted name. `config` is the TOML file of `--config`; without it, `LEADLINE_CONFIG` names one.
    Its tables `[broker]`, `[controller]` and `[coordinator]` have settings of one kind of service.

    Raises:
        SettingsError: a setting is unknown, missing or invalid, or the file cannot be read.

    """
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    in_file = {} if config is None else _of_kind(_read_file(config), model.kind)
    in_environment = _from_environment(environment)
    _refuse_secrets(flags)
    values: dict[str, Any] = {}
    for layer in (in_file, in_environment, flags):
        values |= {attribute_of(name): value for name, value in _by_own_names(layer).items()}
    values = {name: value for name, value in values.items() if name in model.model_fields}
    try:
        return model.model_validate(values)
    except ValidationError as problem:
        raise SettingsError(_first_problem(problem, in_environment, flags)) from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SettingsError(f"cannot read the settings of {path}: {problem}") from problem
    return dict(_flatten(document))


def _of_kind(values: Mapping[str, Any], own: Kind | None) -> dict[str, Any]:
    """Return what a file says of one kind of service; its own table overrides what is for all.

    In `[broker]`, `id` is the setting `broker.id`, and `listen.port` is the port of brokers only.
    """
    known = known_settings(topics=False)
    found: dict[str, Any] = {}
    for kind in (None, *KINDS):
        for name, value in values.items():
            section, _, inner = name.partition(".")
            if (section if section in KINDS and name not in known else None) != kind:
                continue
            if kind is None:
                found[name] = value
            elif inner not in known:
                raise SettingsError(f"unknown setting {inner} in [{kind}]{nearest(inner, known)}")
            elif kind == own:
                found[inner] = value
    return found


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    # TOML parses a dotted key as nested tables, like [zookeeper.session].
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
        if name in known_settings(topics=False) or not _SERVICE_LINK.fullmatch(variable):
            found[name] = value
    return found


def _by_own_names(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of one source with aliases replaced by the settings' own names."""
    known = known_settings(topics=False)
    values: dict[str, Any] = {}
    for name, value in layer.items():
        if name not in known:
            raise SettingsError(f"unknown setting {name}{nearest(name, known)}")
        own = known[name].name
        if own in values:
            raise SettingsError(f"{own} is given twice: {name} is an alias of it")
        values[own] = value
    return values


def _refuse_secrets(flags: Mapping[str, str]) -> None:
    """Refuse a password in a flag: everybody on the machine can read a process's arguments."""
    for name, value in _by_own_names(flags).items():
        if known_settings(topics=False)[name].sensitive and "@" in value:
            raise SettingsError(
                f"{name} has a password: set it by {_variable_of(name)} or in the file of "
                "--config, because everybody can read the arguments of a process"
            )


def _first_problem(
    problem: ValidationError, environment: Mapping[str, str], flags: Mapping[str, str]
) -> str:
    first = problem.errors(include_url=False)[0]
    name = dotted(str(first["loc"][0]))
    if first["type"] == "missing":
        return f"{name} is required"
    given = name if name in _by_own_names(flags) else name + _in_variable(name, environment)
    if known_settings(topics=False)[name].sensitive:
        return f"{given}: {first['msg']}"
    return f"{given}: {first['msg']}, not {first['input']!r}"


def _in_variable(name: str, environment: Mapping[str, str]) -> str:
    """Return the variable that sets a setting, in parentheses, or nothing if none does."""
    known = known_settings(topics=False)
    given = (one for one in environment if known[one].name == name)
    return "".join(f" ({_variable_of(one)})" for one in given)


def _variable_of(name: str) -> str:
    return ENV_PREFIX + attribute_of(name).upper()
