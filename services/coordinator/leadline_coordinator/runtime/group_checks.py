"""What a coordinator checks of a group that it has not loaded."""

from __future__ import annotations

from leadline_client.errors import GroupUnreadable, TooManyGroups
from leadline_coordinator.runtime.context import CoordinatorContext


def check_readable(context: CoordinatorContext, name: str) -> None:
    """Refuse a group that an operator lets nobody else read: it is not created over what is there.

    Raises:
        GroupUnreadable: it could not be loaded.

    """
    path = context.store.groups.unreadable.get(name)
    if path is not None:
        raise GroupUnreadable(
            f"the coordinator may not read group {name!r} in ZooKeeper: mend the ACL of {path}"
        )


def check_count(context: CoordinatorContext, count: int) -> None:
    """Refuse one group more than `count`.

    Raises:
        TooManyGroups: there are as many as allowed.

    """
    if count >= context.settings.group_max_count:
        raise TooManyGroups(
            f"there are {count} groups, the most that group.max.count allows: "
            "delete those that nobody uses"
        )
