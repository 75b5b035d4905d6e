"""What roles may do, and what the grants of a principal allow. Deny by default.

A grant gives a role for some topics and groups: for names, for all names with a prefix
(`orders.*`), or for all (`*`). An operation needs an `Action` on one topic, on one group, or on the
cluster. Only a grant for all topics and groups counts for the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, Self

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
    topics: tuple[str, ...]
    groups: tuple[str, ...]

    @classmethod
    def of_all(cls, role: Role) -> Self:
        """Return a grant for all topics and groups."""
        return cls(role, (ALL,), (ALL,))

    @property
    def is_unlimited(self) -> bool:
        """Whether the grant is for all topics and groups."""
        return ALL in self.topics and ALL in self.groups


@dataclass(frozen=True, slots=True)
class Names:
    """A set of names: some, and all with one of some prefixes.

    A question takes as long as there are prefixes of different lengths, however many there are:
    lists of thousands of topics are filtered on the event loop.
    """

    names: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()
    lengths: tuple[int, ...] = ()

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Self:
        """Return the names that patterns, `name` or `prefix*`, cover."""
        found = frozenset(patterns)
        prefixes = frozenset(one[:-1] for one in found if one.endswith(ALL))
        names = frozenset(one for one in found if not one.endswith(ALL))
        return cls(names, prefixes, tuple(sorted({len(one) for one in prefixes})))

    def has(self, name: str) -> bool:
        """Tell whether a name is one of these."""
        return name in self.names or self.has_all_with(name)

    def has_all_with(self, prefix: str) -> bool:
        """Tell whether every name with a prefix is one of these."""
        size = len(prefix)
        return any(length <= size and prefix[:length] in self.prefixes for length in self.lengths)


_NONE: Final = Names()


_SPECIAL: Final = frozenset("[](){}.*+?^$|\\")


def prefix_of_pattern(pattern: str) -> str:
    """Return what every name begins with that a regular expression (RE2) matches as a whole.

    It may be shorter than the longest such prefix.
    """
    # A group may change what comes before it: `x(?i){0}` matches "".
    if "|" in pattern or "(" in pattern:
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
    _names: Mapping[_Right, Names] = field(init=False, compare=False, repr=False)
    _cluster: frozenset[Action] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        patterns: dict[_Right, set[str]] = {}
        cluster = set()
        for grant in self.grants:
            for kind, action in RIGHTS_OF_ROLES[grant.role]:
                if kind != "cluster":
                    named = grant.topics if kind == "topic" else grant.groups
                    patterns.setdefault((kind, action), set()).update(named)
                elif grant.is_unlimited or action is Action.CONNECT:
                    cluster.add(action)
        names = {right: Names.of(found) for right, found in patterns.items()}
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_cluster", frozenset(cluster))

    def allows(self, action: Action, kind: Kind, name: str = "") -> bool:
        """Tell whether an action on a resource is allowed."""
        if self.unlimited:
            return True
        if kind == "cluster":
            return action in self._cluster
        return self._names.get((kind, action), _NONE).has(name)

    def allows_somewhere(self, action: Action, kind: Kind) -> bool:
        """Tell whether the action is allowed on any resource of a kind."""
        return self.unlimited or self._names.get((kind, action), _NONE) != _NONE

    def allows_prefix(self, action: Action, kind: Kind, prefix: str) -> bool:
        """Tell whether the action is allowed on every resource whose name has a prefix."""
        return self.unlimited or self._names.get((kind, action), _NONE).has_all_with(prefix)

    def allows_all(self, action: Action, kind: Kind) -> bool:
        """Tell whether the action is allowed on every resource of a kind."""
        return self.allows_prefix(action, kind, "")

    def visible(self, kind: Kind, names: Iterable[str]) -> list[str]:
        """Return the topics or groups of `names` that may be described."""
        if self.unlimited:
            return list(names)
        seen = self._names.get((kind, Action.DESCRIBE), _NONE)
        return [name for name in names if seen.has(name)]


NO_ACCESS: Final = Access()
UNLIMITED: Final = Access(unlimited=True)

ACCESS_OF_SERVICES: Final[dict[str, Access]] = {
    "broker": Access((Grant.of_all(Role.VIEWER),)),
    "controller": Access((Grant.of_all(Role.AUDITOR),)),
    "coordinator": Access((Grant.of_all(Role.VIEWER),)),
}
"""What services may ask of each other's routes for clients: metadata, offsets, audit exports."""
