"""Users: their grants and tokens, as ZooKeeper keeps them, and how they change. Pure.

`/security/users/{name}` holds one user. Each write also sets `/security/users`, so that one watch
tells every service that something has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from leadline_client.errors import InvalidRequest, NotFound, PolicyViolation
from leadline_common.access.principals import Principal
from leadline_common.access.rights import ALL, NO_ACCESS, Access, Grant
from leadline_common.access.tokens import KeptToken, Token
from leadline_common.quotas.limits import DEFAULTS, Limits
from leadline_common.znode_json import VALUE_VERSION, decode_json

USERS: Final = "/security/users"
MAX_USERS: Final = 1_000
MAX_GRANTS: Final = 50
MAX_PATTERNS: Final = 200
"""Topics and groups that all grants of a user name together."""
MAX_TOKENS: Final = 2
"""Tokens of a user that are alive at a time: the old one, and the one that replaces it."""
MAX_EXPIRED: Final = 4
"""Expired tokens of a user that are kept: by the clocks of other services they may be alive."""
_MAX_NAME: Final = 255


def user_path(name: str) -> str:
    """Return the node of a user."""
    return f"{USERS}/{name}"


class User(msgspec.Struct, frozen=True):
    """One user: what it may do and how much of it, and its tokens. Times are Unix ms."""

    grants: tuple[Grant, ...] = ()
    tokens: tuple[KeptToken, ...] = ()
    created_ms: int = 0
    version: int = VALUE_VERSION
    quotas: Limits = DEFAULTS

    @property
    def access(self) -> Access:
        """What the user may do."""
        return Access(self.grants)

    def granted(self, grants: Iterable[Grant]) -> User:
        """Return the user with these grants instead of the former ones.

        Raises:
            InvalidRequest: there are too many, or a pattern is malformed.

        """
        found = tuple(dict.fromkeys(grants))
        if len(found) > MAX_GRANTS:
            raise InvalidRequest(f"a user has at most {MAX_GRANTS} grants")
        for grant in found:
            if not (grant.topics or grant.groups):
                raise InvalidRequest("a grant names topics, groups or both")
            check_patterns("topics", grant.topics)
            check_patterns("groups", grant.groups)
        if sum(len(grant.topics) + len(grant.groups) for grant in found) > MAX_PATTERNS:
            raise InvalidRequest(f"the grants of a user name at most {MAX_PATTERNS} patterns")
        return msgspec.structs.replace(self, grants=found)

    def limited(self, quotas: Limits) -> User:
        """Return the user with these quotas instead of the former ones.

        Raises:
            InvalidRequest: one is out of range.

        """
        return msgspec.structs.replace(self, quotas=quotas.checked())

    def with_token(self, token: KeptToken, now_ms: int) -> User:
        """Return the user with one more token; of the expired ones, only the latest are kept.

        Raises:
            PolicyViolation: as many as a user may have are alive.

        """
        alive = [one for one in self.tokens if one.is_alive(now_ms)]
        if len(alive) >= MAX_TOKENS:
            ids = ", ".join(one.id for one in alive)
            raise PolicyViolation(
                f"{MAX_TOKENS} tokens of this user are alive ({ids}): revoke one, then make another"
            )
        expired = [one for one in self.tokens if one not in alive]
        return msgspec.structs.replace(self, tokens=(*expired[-MAX_EXPIRED:], *alive, token))

    def without_token(self, token_id: str) -> User:
        """Return the user without a token.

        Raises:
            NotFound: the user has no such token.

        """
        kept = tuple(one for one in self.tokens if one.id != token_id)
        if len(kept) == len(self.tokens):
            raise NotFound(f"the user has no token {token_id!r}")
        return msgspec.structs.replace(self, tokens=kept)


def check_patterns(name: str, patterns: Iterable[str]) -> None:
    """Check the patterns of a grant: names, or prefixes that end with `*`.

    Raises:
        InvalidRequest: one is malformed.

    """
    for pattern in patterns:
        if not pattern or len(pattern) > _MAX_NAME or ALL in pattern[:-1]:
            raise InvalidRequest(
                f"{name}: {pattern[:_MAX_NAME]!r} is no name, and no prefix with `*` at its end"
            )


def encode_user(user: User) -> bytes:
    """Return the value of a user's node."""
    return msgspec.json.encode(user)


def decode_user(data: bytes) -> User:
    """Decode the value of a user's node.

    Raises:
        msgspec.MsgspecError: it is none.

    """
    found: User = decode_json(data, User)
    return found


def decode_user_or_empty(data: bytes) -> User:
    """Decode the value of a user's node; a damaged one is a user without grants and tokens."""
    try:
        return decode_user(data)
    except msgspec.MsgspecError:
        return User()


@dataclass(frozen=True, slots=True)
class Users:
    """All users of a cluster, as they were at one time, with the access and quotas of each."""

    by_name: Mapping[str, User] = field(default_factory=dict)
    _tokens: Mapping[str, tuple[str, KeptToken]] = field(default_factory=dict, repr=False)
    _access: Mapping[str, Access] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, by_name: Mapping[str, User]) -> Self:
        """Return the users with an index of their tokens."""
        tokens = {one.id: (name, one) for name, user in by_name.items() for one in user.tokens}
        return cls(dict(by_name), tokens, {name: user.access for name, user in by_name.items()})

    def owner_of(self, token: Token, now_ms: int) -> Principal | None:
        """Return the user whose token this is, None if it is nobody's or has expired."""
        name, kept = self._tokens.get(token.id, ("", _NOBODY))
        is_right = kept.matches(token)
        return Principal("user", name) if is_right and name and kept.is_alive(now_ms) else None

    def limits_of(self, name: str) -> Limits:
        """Return the quotas of a user: those by default, if it is unknown or has none."""
        user = self.by_name.get(name)
        return DEFAULTS if user is None else user.quotas

    def created_ms_of(self, name: str) -> int:
        """Return when a user was created (Unix ms), 0 if it is unknown."""
        user = self.by_name.get(name)
        return 0 if user is None else user.created_ms

    def access_of(self, principal: Principal) -> Access:
        """Return what a principal may do: nothing, if it is unknown."""
        if principal.kind != "user":
            return NO_ACCESS
        return self._access.get(principal.name, NO_ACCESS)


_NOBODY: Final = KeptToken(id="", sha256="0" * 64, created_ms=0)
"""Compared where there is no such token, so that this takes no less time."""
