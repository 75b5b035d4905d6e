"""Which bootstrap addresses a client takes, and what it says of others."""

from __future__ import annotations

import pytest

from leadline_client import AsyncClient, Client, Producer
from leadline_client.bootstrap import base_urls
from leadline_client.errors import InvalidRequest

NO_ADDRESSES = [
    "host:port",
    "h:0",
    "h:99999",
    "http://[::1",
    "http://",
    "ftp://h",
    "h?x",
    "a b",
    "h#x",
    "h:1:2",
]


@pytest.mark.parametrize(
    ("given", "urls"),
    [
        ("h:9092", ("http://h:9092",)),
        (" h:1 , https://g:2/ ,", ("http://h:1", "https://g:2")),
        (["h", "http://[::1]:9092"], ("http://h", "http://[::1]:9092")),
        ("https://proxy/leadline/", ("https://proxy/leadline",)),
    ],
)
def test_addresses_are_urls_or_host_and_port(given: str | list[str], urls: tuple[str, ...]) -> None:
    assert base_urls(given) == urls


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_what_is_no_address_is_refused_before_anything_is_sent(address: str) -> None:
    with pytest.raises(InvalidRequest, match="no address of a broker: give host:port"):
        base_urls(f"h:9092,{address}")


@pytest.mark.parametrize("given", ["", " , ", []])
def test_no_address_is_refused(given: str | list[str]) -> None:
    with pytest.raises(InvalidRequest, match="no address of a broker is given"):
        base_urls(given)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidRequest, match="user or a password") as refused:
        base_urls("http://me:secret@h:9092")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("made", [Client, AsyncClient, Producer])
def test_clients_refuse_what_is_no_address(made: type[Client | AsyncClient | Producer]) -> None:
    """It was looked for until the end of the deadline, as a broker that is down."""
    with pytest.raises(InvalidRequest):
        made("host:port")
