"""Handlers of changes of users. A change is one multi with its audit entry.

The controller keeps no users: services read them in ZooKeeper themselves (`user_directory`). A
change is conditional on the version that was read for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from leadline_client.errors import NotFound, PolicyViolation, StaleVersion
from leadline_common.access.caller import current_actor
from leadline_common.access.principals import check_user_name
from leadline_common.access.rights import Grant
from leadline_common.access.tokens import KeptToken
from leadline_common.access.users import (
    MAX_USERS,
    USERS,
    User,
    decode_user_or_empty,
    encode_user,
    user_path,
)
from leadline_common.clock import Clock
from leadline_common.quotas.limits import Limits
from leadline_common.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp
from leadline_controller.runtime.engine.event_queue import EventHandler
from leadline_controller.runtime.engine.events import ControllerRequest, Reply
from leadline_controller.runtime.engine.guard import require_etag
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import MAX_ATTEMPTS, StateWriter
from leadline_controller.runtime.ports import ControllerStore


class KeptUser(NamedTuple):
    """A user, and the transaction (zxid) that last wrote it."""

    user: User
    zxid: int

    @property
    def version(self) -> str:
        """Changes with every change of the user, and is never that of another one of its name."""
        return str(self.zxid)


@dataclass(frozen=True, slots=True)
class ListUsers(ControllerRequest[Mapping[str, KeptUser]]):
    """Read the users of these names, None for all; those that do not exist are left out."""

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChangeUser(ControllerRequest[KeptUser]):
    """Change a user; answered with the user as it then is, or was when it was deleted."""

    name: str

    @property
    def resource(self) -> Mapping[str, Any]:
        """The user."""
        return {"user": self.name}


@dataclass(frozen=True, slots=True)
class CreateUser(ChangeUser):
    """Create a user."""

    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class SetGrants(ChangeUser):
    """Replace the grants of a user."""

    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class SetQuotas(ChangeUser):
    """Replace the quotas of a user."""

    quotas: Limits


@dataclass(frozen=True, slots=True)
class AddToken(ChangeUser):
    """Give a user a token."""

    token: KeptToken


@dataclass(frozen=True, slots=True)
class RevokeToken(ChangeUser):
    """Take a token from a user."""

    token_id: str


@dataclass(frozen=True, slots=True)
class DeleteUser(ChangeUser):
    """Delete a user."""


@dataclass(eq=False)
class UserManager(EventHandler):
    """Handles changes of users."""

    store: ControllerStore
    writer: StateWriter
    audit: AuditLog
    clock: Clock

    @ListUsers.handler
    async def on_list(self, event: ListUsers, reply: Reply[Mapping[str, KeptUser]]) -> None:
        """Read users; one that cannot be read counts as one without grants and tokens."""
        names: Sequence[str] | None = event.names
        if names is None:
            (found,) = await self.store.children([USERS])
            names = sorted(found or [])
        nodes = await self.store.read_nodes([user_path(name) for name in names])
        reply.settle(
            {
                name: KeptUser(decode_user_or_empty(node.data), node.zxid)
                for name, node in zip(names, nodes, strict=True)
                if node is not None
            }
        )

    @CreateUser.handler
    async def on_create(self, event: CreateUser, reply: Reply[KeptUser]) -> None:
        """Create a user.

        Raises:
            InvalidRequest: the name or a grant is malformed.
            PolicyViolation: there is one of this name, or there are too many.

        """
        check_user_name(event.name)
        user = User(created_ms=self.clock.wall_ms()).granted(event.grants)
        (names,) = await self.store.children([USERS])
        if len(names or []) >= MAX_USERS:
            raise PolicyViolation(f"a cluster has at most {MAX_USERS} users")
        create = CreateOp(user_path(event.name), encode_user(user))
        try:
            zxid = await self._commit(create, "user_created", event, None, user)
        except MultiFailed as failure:
            if isinstance(failure.error, NodeExists):
                raise PolicyViolation(f"there is a user {event.name!r} already") from None
            raise
        reply.settle(KeptUser(user, zxid))

    @SetGrants.handler
    async def on_grants(self, event: SetGrants, reply: Reply[KeptUser]) -> None:
        """Replace the grants of a user."""
        await self._change(event, reply, "grants_changed", lambda user: user.granted(event.grants))

    @SetQuotas.handler
    async def on_quotas(self, event: SetQuotas, reply: Reply[KeptUser]) -> None:
        """Replace the quotas of a user."""
        await self._change(event, reply, "quotas_changed", lambda user: user.limited(event.quotas))

    @AddToken.handler
    async def on_token(self, event: AddToken, reply: Reply[KeptUser]) -> None:
        """Give a user a token."""
        now_ms = self.clock.wall_ms()
        await self._change(
            event, reply, "token_created", lambda user: user.with_token(event.token, now_ms)
        )

    @RevokeToken.handler
    async def on_revoke(self, event: RevokeToken, reply: Reply[KeptUser]) -> None:
        """Take a token from a user."""
        await self._change(
            event, reply, "token_revoked", lambda user: user.without_token(event.token_id)
        )

    @DeleteUser.handler
    async def on_delete(self, event: DeleteUser, reply: Reply[KeptUser]) -> None:
        """Delete a user."""
        await self._change(event, reply, "user_deleted", None)

    # -- within ----------------------------------------------------------------

    async def _change(
        self,
        event: ChangeUser,
        reply: Reply[KeptUser],
        kind: str,
        change: Callable[[User], User] | None,
    ) -> None:
        """Apply a change to a user as it now is, None for its deletion.

        Raises:
            NotFound: there is no such user.
            PolicyViolation: its node cannot be read.
            LeadlineError: `change` refused it.
            StaleVersion: others keep writing the same user, or have since the caller read it.

        """
        path = user_path(event.name)
        for _ in range(MAX_ATTEMPTS):
            check_user_name(event.name)
            (node,) = await self.store.read_nodes([path])
            if node is None:
                raise NotFound(f"there is no user {event.name!r}")
            require_etag(self.writer.guard, f'"{node.zxid}"', f"user {event.name!r}")
            before = decode_user_or_empty(node.data)
            if change is not None and before == User():
                raise PolicyViolation(
                    f"user {event.name!r} cannot be read: delete it, and create it again"
                )
            after = None if change is None else change(before)
            op: Op = DeleteOp(path, node.version)
            if after is not None:
                op = SetOp(path, encode_user(after), node.version)
            try:
                zxid = await self._commit(op, kind, event, before, after)
            except MultiFailed as failure:
                if not isinstance(failure.error, BadVersion | NoNode):
                    raise
            else:
                reply.settle(KeptUser(after or before, zxid))
                return
        raise StaleVersion(f"user {event.name!r} is being written by others; nothing was changed")

    async def _commit(
        self, op: Op, kind: str, event: ChangeUser, before: User | None, after: User | None
    ) -> int:
        """Write a user, and tell every service by the version of `USERS`; return the zxid."""
        entry = self.audit.entry(
            kind,
            event.resource,
            actor=current_actor(),
            before=_audited(before),
            after=_audited(after),
        )
        return (await self.writer.commit([op, SetOp(USERS, b"", ANY_VERSION)], entry)).zxid


def _audited(user: User | None) -> Any:
    """Return what the audit says of a user: no hash of a token."""
    if user is None:
        return None
    return {
        "grants": [msgspec.to_builtins(grant) for grant in user.grants],
        "tokens": [one.id for one in user.tokens],
        "quotas": msgspec.to_builtins(user.quotas),
    }
