"""Bootstrap addresses: those of the brokers that a client is given. Pure: no IO."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from leadline_client.errors import InvalidRequest

_ADDRESS: Final = re.compile(
    r"https?://(\[[0-9a-fA-F:.%]+\]|[^\s:/?#\[\]@\\]+)(:(?P<port>[0-9]{1,5}))?(/[^\s?#]*)?"
)
_PORTS: Final = range(1, 1 << 16)


def base_url(address: str) -> str:
    """Return the base URL of an address; `host:port`, as for Kafka's clients, means HTTP."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


def base_urls(addresses: str | Iterable[str]) -> tuple[str, ...]:
    """Return the base URLs of addresses: URLs or `host:port`, in a string separated by commas.

    Raises:
        InvalidRequest: there is no address, or one of them is none. One that has a user or a
            password is not shown.

    """
    parts = addresses.split(",") if isinstance(addresses, str) else addresses
    urls = tuple(_checked(part.strip()) for part in parts if part.strip())
    if not urls:
        raise InvalidRequest("no address of a broker is given, such as 127.0.0.1:9092")
    return urls


def _checked(address: str) -> str:
    url = base_url(address)
    if "@" in url:
        raise InvalidRequest(
            "an address of a broker has a user or a password: give a token file instead"
        )
    found = _ADDRESS.fullmatch(url)
    if found is None or (found["port"] is not None and int(found["port"]) not in _PORTS):
        raise InvalidRequest(
            f"{address!r} is no address of a broker: give host:port, or a URL such as "
            "https://host:9092; several are separated by commas"
        )
    return url
