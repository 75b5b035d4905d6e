"""Who sent the request that is being handled, and what the sender may do.

The services' outermost layer sets it for each request (`leadline_common.http.access`). It goes
along with the request's cause id: into the tasks that the request starts, and into the audit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from leadline_client.errors import Forbidden
from leadline_common.access.principals import ANONYMOUS, Principal
from leadline_common.access.rights import (
    NO_ACCESS,
    UNLIMITED,
    Access,
    Action,
    Kind,
    prefix_of_pattern,
)
from leadline_common.context_scope import ContextScope

OPERATOR: Final = "operator"
"""The actor of a request in a cluster without authentication: it could be anybody."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal with what it may do."""

    principal: Principal
    access: Access


EVERYBODY: Final = Caller(ANONYMOUS, UNLIMITED)
"""Whoever sends requests in a cluster without authentication, and the service's own work."""

NOBODY: Final = Caller(ANONYMOUS, NO_ACCESS)
"""Whoever does not show who it is, in a cluster with authentication."""

_current: ContextVar[Caller] = ContextVar("leadline_caller", default=EVERYBODY)
_told: ContextVar[Callable[[Forbidden], None] | None] = ContextVar(
    "leadline_refusals_told", default=None
)


def current_caller() -> Caller:
    """Return the sender of the request that is being handled."""
    return _current.get()


def current_actor() -> str:
    """Return how the audit names the sender of the request that is being handled."""
    principal = _current.get().principal
    return OPERATOR if principal == ANONYMOUS else str(principal)


def caller_scope(caller: Caller) -> ContextScope[Caller]:
    """Set the caller for the body of the `with` statement and the tasks that it starts."""
    return ContextScope(_current, caller)


def replace_caller(caller: Caller) -> None:
    """Let the rest of the `with` statement of a `caller_scope` have this caller instead."""
    _current.set(caller)


def refusals_told(to: Callable[[Forbidden], None]) -> ContextScope[Callable[[Forbidden], None]]:
    """Call `to` with each refusal of the functions below, in the block and the tasks it starts."""
    return ContextScope(_told, to)


def _refused(action: Action, kind: Kind, name: str = "") -> Forbidden:
    error, to = refusal(_current.get(), action, kind, name), _told.get()
    if to is not None:
        to(error)
    return error


def refusal(caller: Caller, action: Action, kind: Kind, name: str = "") -> Forbidden:
    """Return the error for an action that a caller may not do."""
    what = f"{kind} {name!r}" if name else f"the {kind}" if kind == "cluster" else f"any {kind}"
    return Forbidden(
        f"{caller.principal} may not {action} {what}: an administrator can grant a role that may "
        "(`leadline users grant`)"
    )


def require(action: Action, kind: Kind, names: Iterable[str]) -> None:
    """Refuse the request unless its sender may do something to all of these topics or groups.

    For operations whose requests name them in their bodies (`Need.where`).

    Raises:
        Forbidden: an action is not allowed on one of them.

    """
    access = _current.get().access
    for name in names:
        if not access.allows(action, kind, name):
            raise _refused(action, kind, name)


def require_all(action: Action, kind: Kind) -> None:
    """Refuse the request unless its sender may do something to every topic or every group.

    Raises:
        Forbidden: the action is not allowed on all of them.

    """
    if not _current.get().access.allows_all(action, kind):
        raise _refused(action, kind)


def require_matches(action: Action, kind: Kind, pattern: str) -> None:
    """Refuse the request unless its sender may do something to all that a pattern (RE2) matches.

    Raises:
        Forbidden: a grant does not cover all names that the pattern may match.

    """
    if not _current.get().access.allows_prefix(action, kind, prefix_of_pattern(pattern)):
        raise _refused(action, kind, pattern)


def require_on_cluster(action: Action) -> None:
    """Refuse the request unless its sender may do something to the cluster.

    Raises:
        Forbidden: the action is not allowed.

    """
    require(action, "cluster", [""])


def visible(
    kind: Kind, asked: Collection[str] | None, known: Callable[[], Iterable[str]]
) -> Collection[str] | None:
    """Return the topics or groups to show of those that were `asked` for; None stands for all.

    What the sender may not describe is left out, as if it did not exist. `known()` returns all.
    """
    access = _current.get().access
    if access.allows_all(Action.DESCRIBE, kind):
        return asked
    return access.visible(kind, known() if asked is None else asked)


def version_for_caller(version: str) -> str:
    """Return the version of a document of all topics, which depends on who may see which."""
    rights = _digest_of_rights()
    return f"{version}-{rights}" if rights else version


def version_known_to_caller(stated: str) -> str | None:
    """Return the version that `version_for_caller` made this of.

    None if it was made for somebody with other rights: the document then had other topics.
    """
    rights = _digest_of_rights()
    if not rights:
        return stated
    return stated.removesuffix(f"-{rights}") if stated.endswith(f"-{rights}") else None


def _digest_of_rights() -> str:
    """Return a digest of the topics that the sender may see, empty if it may see all."""
    access = _current.get().access
    if access.allows_all(Action.DESCRIBE, "topic"):
        return ""
    return hashlib.sha256(repr(access.grants).encode()).hexdigest()[:12]
