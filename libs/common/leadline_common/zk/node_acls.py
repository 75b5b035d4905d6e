"""Which role may do what with which node of ZooKeeper. Pure: no IO.

ZooKeeper checks a write of a node's value with the node's own ACL, and its creation or deletion
with the ACL of its parent. So a row gives a role WRITE for the nodes of its pattern, and CREATE and
DELETE for what is right below them. All roles read all nodes; nobody else does.

Brokers share one user. ZooKeeper grants creation and deletion for all children of a node, so users
for single brokers would not keep broker 2 from replacing the registration of broker 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
"""The right to change the ACL, and with it all others."""
ALL: Final = READ | WRITE | CREATE | DELETE | ADMIN

ANYONE: Final = "world:anyone"
"""ZooKeeper's name for everybody, also those who did not log in."""

ROLES: Final = ("controller", "broker", "coordinator")
_CHILDREN: Final = CREATE | DELETE
_SUBTREE: Final = CREATE | DELETE | WRITE
_REST: Final = "**"

NODE_RIGHTS: Final[Mapping[str, Mapping[str, int]]] = {
    "/": {"controller": CREATE},
    "/cluster": {"controller": CREATE},
    "/cluster/id": {},
    "/controller": {},
    "/controller_epoch": {"controller": WRITE},
    "/brokers": {"controller": CREATE},
    "/brokers/ids": {"broker": _CHILDREN},
    "/brokers/ids/*": {},
    "/brokers/epochs": {"broker": CREATE},
    "/brokers/epochs/*": {"broker": WRITE},
    "/brokers/directories": {"broker": CREATE},
    "/brokers/directories/*": {"broker": WRITE},
    "/brokers/topics": {"controller": _CHILDREN},
    "/brokers/topics/**": {"controller": _SUBTREE},
    "/brokers/topics/*/partitions/*/state": {"controller": WRITE, "broker": WRITE},
    "/admin": {"controller": _CHILDREN},
    "/admin/**": {"controller": _SUBTREE},
    "/admin/audit": {"controller": _CHILDREN, "broker": CREATE, "coordinator": CREATE},
    "/admin/audit/*": {},
    "/config": {"controller": _CHILDREN},
    "/config/**": {"controller": _SUBTREE},
    "/consumers": {"coordinator": _CHILDREN},
    "/consumers/**": {"coordinator": _SUBTREE},
    "/latest_producer_id_block": {"broker": WRITE},
    "/security": {"controller": _CHILDREN},
    "/security/**": {"controller": _SUBTREE},
}
"""What roles may do besides reading, by pattern: `*` is one name, `**` any path.

The longest pattern counts. A node of no pattern can be read by the roles, and changed by
administrators only.
"""


def role_of(user: str) -> str:
    """Return the role of a user `name:digest`: its name. A name of no role is an administrator."""
    return user.partition(":")[0]


def pattern_of(path: str) -> str | None:
    """Return the pattern of `NODE_RIGHTS` that counts for a node, None if there is none."""
    names = _names(path)
    fitting = (pattern for parts, pattern in _patterns(len(names)) if _matches(parts, names))
    return next(fitting, None)


def acl_of(path: str, users: Sequence[str]) -> dict[str, int]:
    """Return the ACL of a node for a cluster's users: permissions by `scheme:user`.

    `users` are `name:digest`, or `ANYONE` while a cluster is migrated.
    """
    rights = NODE_RIGHTS.get(pattern_of(path) or "", {})
    found = {}
    for user in users:
        if user == ANYONE:
            found[ANYONE] = ALL
        elif (role := role_of(user)) in ROLES:
            found[f"digest:{user}"] = READ | rights.get(role, 0)
        else:
            found[f"digest:{user}"] = ALL
    return found


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


@cache
def _patterns(length: int) -> list[tuple[list[str], str]]:
    """Return the patterns that a path of `length` names can match, the longest first."""
    rows = [(_names(pattern), pattern) for pattern in NODE_RIGHTS]
    fitting = [
        (parts, pattern)
        for parts, pattern in rows
        if len(parts) == length or (parts[-1:] == [_REST] and len(parts) <= length)
    ]
    return sorted(fitting, key=lambda row: (len(row[0]), row[0][-1:] != [_REST]), reverse=True)


def _matches(pattern: Sequence[str], names: Sequence[str]) -> bool:
    fixed = pattern[:-1] if pattern[-1:] == [_REST] else pattern
    return all(part in ("*", name) for part, name in zip(fixed, names, strict=False))
