"""What roles may do, and what the grants of a principal allow. Deny by default.

A grant gives a role for some topics and groups: for names, for all names with a prefix
(`orders.*`), or for all (`*`). An operation needs an `Action` on one topic, on one group, or on the
cluster. Only a grant for all topics and groups counts for the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

Kind = Literal["cluster", "topic", "group"]
ALL: Final = "*"


class Action(StrEnum):
    """What an operation does to a topic, a group or the cluster."""

    CONNECT = "connect"
    """See who serves the cluster: its id, its brokers' addresses, the controller's."""
    DESCRIBE = "describe"
    """See that a topic or a group exists, its partitions, offsets, members and settings."""
    READ = "read"
    """Read the records of a topic."""
    WRITE = "write"
    """Append records to a topic."""
    CONSUME = "consume"
    """Be a member of a group, and commit its offsets."""
    MONITOR = "monitor"
    """See the state of the whole cluster: metrics, tasks, events, replicas, loads, settings."""
    OPERATE = "operate"
    """Create, change, move and delete."""
    AUDIT = "audit"
    """Read who changed what."""
    ADMINISTER = "administer"
    """Decide who may do what."""


class Role(StrEnum):
    """A set of actions with the name of a job."""

    VIEWER = "viewer"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    ADMIN = "admin"


_Right = tuple[Kind, Action]
_SEES: Final[frozenset[_Right]] = frozenset(
    {
        ("cluster", Action.CONNECT),
        ("cluster", Action.MONITOR),
        ("topic", Action.DESCRIBE),
        ("group", Action.DESCRIBE),
    }
)
RIGHTS_OF_ROLES: Final[dict[Role, frozenset[_Right]]] = {
    Role.VIEWER: _SEES,
    Role.PRODUCER: frozenset(
        {("cluster", Action.CONNECT), ("topic", Action.DESCRIBE), ("topic", Action.WRITE)}
    ),
    Role.CONSUMER: frozenset(
        {
            ("cluster", Action.CONNECT),
            ("topic", Action.DESCRIBE),
            ("topic", Action.READ),
            ("group", Action.DESCRIBE),
            ("group", Action.CONSUME),
        }
    ),
    Role.OPERATOR: _SEES
    | {("cluster", Action.OPERATE), ("topic", Action.OPERATE), ("group", Action.OPERATE)},
    Role.AUDITOR: _SEES | {("cluster", Action.AUDIT)},
    Role.ADMIN: frozenset(
        (kind, action) for kind in ("cluster", "topic", "group") for action in Action
    ),
}
"""An operator may change everything but rights, and neither read nor write records."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for the topics and the groups whose names one of the patterns covers."""

    role: Role
    topics: tuple[str, ...] = (ALL,)
    groups: tuple[str, ...] = (ALL,)

    @property
    def is_unlimited(self) -> bool:
        """Whether the grant is for all topics and groups."""
        return ALL in self.topics and ALL in self.groups

    def allows(self, action: Action, kind: Kind, name: str) -> bool:
        """Tell whether the grant allows an action on a resource."""
        if (kind, action) not in RIGHTS_OF_ROLES[self.role]:
            return False
        if kind == "cluster":
            return self.is_unlimited or action is Action.CONNECT
        return covers(self.topics if kind == "topic" else self.groups, name)


def covers(patterns: Iterable[str], name: str) -> bool:
    """Tell whether one of the patterns, `name` or `prefix*`, covers a name."""
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith(ALL) else name == pattern
        for pattern in patterns
    )


_SPECIAL: Final = frozenset("[](){}.*+?^$|\\")


def prefix_of_pattern(pattern: str) -> str:
    """Return what every name begins with that a regular expression (RE2) matches as a whole.

    It may be shorter than the longest such prefix.
    """
    if "|" in pattern:
        return ""
    prefix, rest = "", pattern
    while rest:
        taken = rest[1:2] if rest[0] == "\\" else rest[0]
        length = 2 if rest[0] == "\\" else 1
        # After a backslash, a letter or a digit is a class or a command.
        if rest[0] == "\\" and (not taken or taken.isalnum()):
            break
        if rest[0] != "\\" and rest[0] in _SPECIAL:
            break
        if rest[length : length + 1] and rest[length] in "*?{":  # it may be absent
            break
        prefix, rest = prefix + taken, rest[length:]
    return prefix


@dataclass(frozen=True, slots=True)
class Access:
    """What a principal may do: what one of its grants allows, and nothing else.

    `unlimited` is the access of everybody in a cluster without authentication.
    """

    grants: tuple[Grant, ...] = ()
    unlimited: bool = False

    def allows(self, action: Action, kind: Kind, name: str = "") -> bool:
        """Tell whether an action on a resource is allowed."""
        if self.unlimited:
            return True
        return any(grant.allows(action, kind, name) for grant in self.grants)

    def allows_somewhere(self, action: Action, kind: Kind) -> bool:
        """Tell whether the action is allowed on any resource of a kind."""
        if self.unlimited:
            return True
        return any((kind, action) in RIGHTS_OF_ROLES[grant.role] for grant in self.grants)

    def allows_prefix(self, action: Action, kind: Kind, prefix: str) -> bool:
        """Tell whether the action is allowed on every resource whose name has a prefix."""
        if self.unlimited:
            return True
        return any(
            (kind, action) in RIGHTS_OF_ROLES[grant.role]
            and any(
                one.endswith(ALL) and prefix.startswith(one[:-1])
                for one in (grant.topics if kind == "topic" else grant.groups)
            )
            for grant in self.grants
        )

    def allows_all(self, action: Action, kind: Kind) -> bool:
        """Tell whether the action is allowed on every resource of a kind."""
        return self.allows_prefix(action, kind, "")

    def visible(self, kind: Kind, names: Iterable[str]) -> list[str]:
        """Return the topics or groups of `names` that may be described."""
        return [name for name in names if self.allows(Action.DESCRIBE, kind, name)]


NO_ACCESS: Final = Access()
UNLIMITED: Final = Access(unlimited=True)

ACCESS_OF_SERVICES: Final[dict[str, Access]] = {
    "broker": Access((Grant(Role.VIEWER),)),
    "controller": Access((Grant(Role.AUDITOR),)),
    "coordinator": Access((Grant(Role.VIEWER),)),
}
"""What services may ask of each other's routes for clients: metadata, offsets, audit exports."""
