"""How a session logs in to ZooKeeper, and who may use the nodes that it creates.

ZooKeeper's digest scheme: a client logs in with `user:password`, and an ACL names users by
`user:base64(sha1(user:password))`. The user's name is its role (`zk.node_acls`): `controller`,
`broker` and `coordinator` may change what is theirs, every other user may change everything, and
nobody else can read. Two users may have the same name, as while a password is replaced. Passwords
are random, so their digests reveal nothing.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from leadline_common.identity import UnusableCredentials
from leadline_common.zk.node_acls import ROLES, role_of

if TYPE_CHECKING:
    from leadline_common.zk.tls import ZkTls


@dataclass(frozen=True, slots=True)
class ZkCredentials:
    """The login of a session, and the digests of all users of its cluster.

    `ANYONE` among the `users` leaves everything open to everybody: see docs/security.md.
    With `tls`, a session connects over TLS.
    Invariant: the login's own user is the first of the `users`.
    """

    login: str = field(repr=False)
    users: tuple[str, ...]
    tls: ZkTls | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, login: str, *others: str) -> ZkCredentials:
        """Return the credentials for a login, which shares its nodes with the digests `others`."""
        return cls(login, tuple(dict.fromkeys((digest_of(login), *others))))

    @property
    def is_administrator(self) -> bool:
        """Whether the login may change everything, ACLs included."""
        return role_of(self.login) not in ROLES


def digest_of(login: str) -> str:
    """Return the id of `user:password` in an ACL."""
    hashed = hashlib.sha1(login.encode(), usedforsecurity=False).digest()  # ZooKeeper's choice
    return f"{login.partition(':')[0]}:{base64.b64encode(hashed).decode()}"


def read_credentials(path: Path) -> ZkCredentials:
    """Read a file of credentials: `user:password`, then a line for each other user's digest.

    Raises:
        UnusableCredentials: it cannot be read, or has another form.

    """
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not UTF-8"
        raise UnusableCredentials(f"{path} cannot be read: {reason}") from None
    if not lines or not all(":" in line for line in lines):
        raise UnusableCredentials(
            f"{path} must have `user:password` in its first line, and `user:digest` of each other "
            "user of the cluster in the following ones"
        )
    return ZkCredentials.of(*lines)
