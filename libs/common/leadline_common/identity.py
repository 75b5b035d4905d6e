"""Which service speaks: the identity in a service's certificate. Pure: no IO.

A certificate names its service twice: as the URI `leadline://broker/3`, from which the other side
reads who speaks, and as the host name `broker-3.leadline.internal`, which TLS compares with the
service that a client meant to call. Addresses prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, get_args

from leadline_client.errors import Forbidden

Kind = Literal["broker", "controller", "coordinator"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_URI: Final = "leadline://{kind}/(0|[1-9][0-9]{{0,9}})"
_DOMAIN: Final = "leadline.internal"


class UnusableCredentials(ValueError):
    """A file of certificates, keys or users cannot be used; the message does not quote it."""


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """One service of the cluster, such as broker 3."""

    kind: Kind
    id: int

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def uri(self) -> str:
        """The URI that names it in its certificate."""
        return f"leadline://{self.kind}/{self.id}"

    @property
    def host_name(self) -> str:
        """The host name that names it in its certificate; no name service knows it."""
        return f"{self.kind}-{self.id}.{_DOMAIN}"

    @classmethod
    def of_certificate(cls, certificate: Mapping[str, Any]) -> Self | None:
        """Return the identity in a verified certificate (`SSLSocket.getpeercert`), if it has one.

        A certificate with several identities has none.
        """
        names = certificate.get("subjectAltName", ())
        uris = [value for kind, value in names if kind == "URI"]
        for kind in KINDS:
            if len(uris) == 1 and (match := re.fullmatch(_URI.format(kind=kind), uris[0])):
                return cls(kind, int(match[1]))
        return None

    def require(self, claimed: ServiceIdentity) -> None:
        """Refuse a request of this service that says it comes from another one.

        Raises:
            Forbidden: the request claims another identity.

        """
        if self != claimed:
            raise Forbidden(f"{self} may not speak as {claimed}")


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A service, its URL for clients, and that of its internal listener, "" if it is not known."""

    service: ServiceIdentity
    url: str
    internal_url: str = ""


@dataclass(frozen=True, slots=True)
class InternalAddress:
    """A service, and the URL of its internal listener; the caller verifies that they match."""

    service: ServiceIdentity
    url: str
