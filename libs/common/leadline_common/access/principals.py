"""Who sends a request: the principal, as authentication found it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, Self

from leadline_client.errors import InvalidRequest
from leadline_common.identity import ServiceIdentity

PrincipalKind = Literal["anonymous", "user", "broker", "controller", "coordinator"]
USER_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,128}")
"""What a user's name may be: it is part of a znode's path, of headers and of log lines."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who sends requests: `user:alice`, `broker:3`, or `anonymous`.

    Invariant: a user has a valid name, a service has its id, and `anonymous` has no name.
    """

    kind: PrincipalKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @classmethod
    def user(cls, name: str) -> Self:
        """Return the principal of a user.

        Raises:
            InvalidRequest: the name has a length or characters that names do not have.

        """
        check_user_name(name)
        return cls("user", name)

    @classmethod
    def service(cls, service: ServiceIdentity) -> Self:
        """Return the principal of a service, as its certificate names it."""
        return cls(service.kind, str(service.id))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the principal of a client in its text form; None if it is malformed.

        A service has no text form that anybody else may send: its certificate names it.
        """
        kind, _, name = text.partition(":")
        if text == "anonymous":
            return cls("anonymous")
        return cls("user", name) if kind == "user" and is_user_name(name) else None


ANONYMOUS: Final = Principal("anonymous")


def is_user_name(name: str) -> bool:
    """Tell whether a name may be a user's; `.` and `..` are no nodes of ZooKeeper."""
    return USER_NAME.fullmatch(name) is not None and name not in (".", "..")


def check_user_name(name: str) -> None:
    """Check the name of a user.

    Raises:
        InvalidRequest: it has a length or characters that names do not have.

    """
    if not is_user_name(name):
        raise InvalidRequest(
            "a user's name has 1 to 128 letters, digits, dots, dashes, underscores and @, "
            "and is neither `.` nor `..`"
        )
