"""Validates dynamic settings, which a topic, one broker and the cluster can have.

A request is validated as a whole (`check_configs`). Values that an operator wrote directly into
ZooKeeper are accepted one by one (`accept_configs`), so that one mistake only causes a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from pydantic import ValidationError

from leadline_client.errors import PolicyViolation
from leadline_common import znodes
from leadline_common.settings.broker import TopicConfigs
from leadline_common.settings.table import (
    Setting,
    attribute_of,
    known_settings,
    nearest,
    text_of,
)

Level = Literal["topic", "broker", "cluster"]
"""Where a dynamic setting is set."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The valid settings of a node, and the problems of the others by name."""

    values: Mapping[str, str]
    problems: Mapping[str, str]


def check_configs(level: Level, configs: Mapping[str, Any]) -> dict[str, str]:
    """Return settings in the form that is stored at a level: own names and canonical values.

    Raises PolicyViolation, with the setting in `config`, for an unknown name, an invalid value, a
    setting that cannot be changed at this level, or one that is given twice.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        row = settable(level, name)
        if row.name in checked:
            raise PolicyViolation(f"{row.name} is given twice, by an alias", config=row.name)
        checked[row.name] = _canonical(row, value)
    return checked


def alter_configs(
    level: Level, found: Mapping[str, str], configs: Mapping[str, Any], remove: Iterable[str]
) -> dict[str, str]:
    """Return the new settings of a level's node, which contains `found`, by name.

    `configs` are set and `remove` are removed. Other values that an operator wrote are kept, even
    invalid ones. Any name in `found` can be removed. Raises PolicyViolation like `check_configs`.
    """
    checked = check_configs(level, configs)
    gone = {name if name in found else settable(level, name).name for name in remove}
    if both := sorted(checked.keys() & gone):
        raise PolicyViolation(f"{both[0]} is both set and removed", config=both[0])
    known = known_settings(topics=level == "topic")
    kept = {}
    for name, value in found.items():
        own = known[name].name if name in known else name
        if own not in checked and not gone & {name, own}:
            kept[name] = value
    return dict(sorted((kept | checked).items()))


def accept_configs(
    level: Level, found: Mapping[str, Any], previous: Mapping[str, str] | None = None
) -> Accepted:
    """Separate the valid from the invalid settings that a level has in ZooKeeper.

    A setting with an invalid value keeps its `previous` value, so that a typing error does not
    change it. A controller or broker that starts later has no previous value, and uses that of the
    next lower level.
    """
    values: dict[str, str] = {}
    problems: dict[str, str] = {}
    for name, value in found.items():
        try:
            values |= check_configs(level, {name: value})
        except PolicyViolation as problem:
            problems[name] = problem.message
            if previous is not None and name in previous:
                values[name] = previous[name]
    return Accepted(values, problems)


def accept_node(
    level: Level, data: bytes | None, previous: Mapping[str, str] | None = None
) -> Accepted:
    """Decode a level's node in ZooKeeper and apply `accept_configs`; None means no node.

    If the node cannot be decoded, all previous values are kept, and the problem's name is empty.
    """
    if not data:
        return Accepted({}, {})
    try:
        found = znodes.decode_configs(data)
    except (msgspec.MsgspecError, AttributeError) as problem:
        return Accepted(previous or {}, {"": f"the node cannot be read: {problem}"})
    return accept_configs(level, found, previous)


def settable(level: Level, name: str) -> Setting:
    """Return the setting of a name or alias that can be set at a level.

    Raises PolicyViolation with the name in `config`; the message says where it can be set instead.
    """
    known = known_settings(topics=level == "topic")
    row = known.get(name)
    problem = _unknown(level, name) if row is None else _misplaced(level, row)
    if row is None or problem:
        raise PolicyViolation(problem, config=name)
    return row


def may_be_set(level: Level, row: Setting) -> bool:
    """Tell whether a setting can be set at this level."""
    return not _misplaced(level, row)


def _unknown(level: Level, name: str) -> str:
    """Return the error for a name that a level does not have, with a suggestion."""
    if level == "topic":
        of_topics = [r.name for r in known_settings(topics=True).values() if r.follows == name]
        offer = f"; a topic's own is {of_topics[0]}" if of_topics else None
        known = known_settings(topics=True)
        return f"unknown topic config {name}{offer or nearest(name, known)}"
    topic = known_settings(topics=True).get(name)
    if topic is not None:
        return f"{name} is set for a topic; for a broker or the cluster it is {topic.follows}"
    return f"unknown setting {name}{nearest(name, known_settings(topics=False))}"


def _misplaced(level: Level, row: Setting) -> str:
    """Return why a setting cannot be set at a level; empty if it can."""
    if row.scope == "read-only":
        return (
            f"{row.name} is read-only: it is set at the start of a service, by flag, "
            "environment or file"
        )
    if level == "cluster" and row.scope == "per-broker":
        return f"{row.name} depends on the machine: set it for one broker, not for the cluster"
    if level == "broker" and row.owner != "broker":
        return f"{row.name} has one value in the whole cluster: set it for the cluster"
    return ""


def _canonical(row: Setting, value: Any) -> str:
    try:
        return text_of(row.parser.validate_python(text_of(value)))
    except ValidationError as problem:
        says = problem.errors(include_url=False)[0]["msg"]
        raise PolicyViolation(f"{row.name}: {says}, not {value!r}", config=row.name) from None


def parse_topic_configs(configs: Mapping[str, Any]) -> TopicConfigs:
    """Return a topic's configs as typed values.

    Raises PolicyViolation, with the config's name, for an unknown name or an invalid value.
    """
    checked = check_configs("topic", configs)
    return TopicConfigs.model_validate({attribute_of(name): v for name, v in checked.items()})
