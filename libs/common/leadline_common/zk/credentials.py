"""How a session logs in to ZooKeeper, and who may change the nodes that it creates.

ZooKeeper's digest scheme: a client logs in with `user:password`, and an ACL names users by
`user:base64(sha1(user:password))`. Everybody may read Leadline's nodes; only the users of the
credentials may change them. Passwords are random, so their digests reveal nothing.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from leadline_common.identity import UnusableCredentials


@dataclass(frozen=True, slots=True)
class ZkCredentials:
    """The login of a session, and the digests of all users that may change its nodes.

    Invariant: the user itself is one of the `writers`, or it could not change its own nodes.
    """

    login: str = field(repr=False)
    writers: tuple[str, ...]

    @classmethod
    def of(cls, login: str, *others: str) -> ZkCredentials:
        """Return the credentials for a login, which shares its nodes with the digests `others`."""
        return cls(login, (digest_of(login), *others))


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
            "user with write access in the following ones"
        )
    return ZkCredentials.of(*lines)
