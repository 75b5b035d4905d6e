"""What may be set while services run, at which level, and in which spelling it is stored.

Three levels have dynamic settings: a topic, one broker, the cluster. A request is
checked whole (`check_configs`); what a person wrote into ZooKeeper by hand is
accepted value by value (`accept_configs`), so that a slip there costs nothing but
a complaint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from pydantic import ValidationError

from leadline_client.errors import PolicyViolation
from leadline_common import znodes
from leadline_common.settings.table import (
    Setting,
    attribute_of,
    known_settings,
    nearest,
    text_of,
)
from leadline_common.settings.topic import TopicConfigs

Level = Literal["topic", "broker", "cluster"]
"""Where a dynamic setting is set."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What is good of a node's settings: `values`, and why the rest is not, by name."""

    values: Mapping[str, str]
    problems: Mapping[str, str]


def check_configs(level: Level, configs: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as they are stored at a level: their own names, values in one spelling.

    Raises PolicyViolation, naming the setting in `config`, for an unknown name, a
    bad value, a setting that cannot be changed at this level, or one given twice.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        row = settable(level, name)
        if row.name in checked:
            raise PolicyViolation(f"{row.name} is given twice, by an alias", config=row.name)
        checked[row.name] = _spelled(row, value)
    return checked


def alter_configs(
    level: Level, found: Mapping[str, str], configs: Mapping[str, Any], remove: Iterable[str]
) -> dict[str, str]:
    """Return what a level's node will hold, which holds `found`, by name.

    `configs` are set and `remove` taken away; what else a person wrote there stays,
    even where it is wrong. Whatever is there may be removed, by the name it is there
    under. Raises PolicyViolation as `check_configs` does.
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
    """Sort what was found in ZooKeeper at a level: what holds, and what cannot.

    A setting whose value is refused keeps its `previous` value where it had one:
    a typing error must not undo what was in force. A later controller or broker,
    which knows no previous value, lets the next weaker level hold.
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
    """Sort the value of a level's node in ZooKeeper, as `accept_configs` does; None is no node.

    Of a value that cannot be read at all, the previous one holds whole; the
    problem then has no name.
    """
    if not data:
        return Accepted({}, {})
    try:
        found = znodes.decode_configs(data)
    except (msgspec.MsgspecError, AttributeError) as problem:
        return Accepted(previous or {}, {"": f"the node cannot be read: {problem}"})
    return accept_configs(level, found, previous)


def settable(level: Level, name: str) -> Setting:
    """Return the setting of this name or alias, if it may be set at a level.

    Raises PolicyViolation, naming it in `config`, and saying where it may be set
    otherwise.
    """
    known = known_settings(topics=level == "topic")
    row = known.get(name)
    problem = _unknown(level, name) if row is None else _misplaced(level, row)
    if row is None or problem:
        raise PolicyViolation(problem, config=name)
    return row


def may_be_set(level: Level, row: Setting) -> bool:
    """Tell whether a setting of this level's table may be set at it."""
    return not _misplaced(level, row)


def _unknown(level: Level, name: str) -> str:
    """Say what may have been meant by a name that a level does not have."""
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
    """Say why a setting cannot be set at a level; empty where it can."""
    if row.scope == "read-only":
        return (
            f"{row.name} is read-only: it is given at the start of a service, by flag, "
            "environment or file"
        )
    if level == "cluster" and row.scope == "per-broker":
        return f"{row.name} depends on the machine: set it for one broker, not for the cluster"
    if level == "broker" and row.owner != "broker":
        return f"{row.name} has one value in the whole cluster: set it for the cluster"
    return ""


def _spelled(row: Setting, value: Any) -> str:
    try:
        return text_of(row.parser.validate_python(text_of(value)))
    except ValidationError as problem:
        says = problem.errors(include_url=False)[0]["msg"]
        raise PolicyViolation(f"{row.name}: {says}, not {value!r}", config=row.name) from None


def parse_topic_configs(configs: Mapping[str, Any]) -> TopicConfigs:
    """Return a topic's configs with their types.

    Raises PolicyViolation, naming the config, for an unknown name or a bad value.
    """
    checked = check_configs("topic", configs)
    return TopicConfigs.model_validate({attribute_of(name): v for name, v in checked.items()})


def validate_topic_configs(configs: Mapping[str, Any]) -> dict[str, str]:
    """Return a topic's configs as they are stored: strings in one spelling.

    Raises PolicyViolation, naming the config, for an unknown name or a bad value.
    """
    return check_configs("topic", configs)
