"""Which hosts and origins may cause a request."""

from __future__ import annotations

import pytest

from leadline_client.errors import (
    HostNotAllowed,
    LeadlineError,
    OriginNotAllowed,
    UnsupportedFormat,
)
from leadline_common.http.origins import AllowedNames, handshake_refusal, host_name, refusal
from leadline_common.settings.fields import ServiceSettings

NAMES = AllowedNames.of(
    ServiceSettings(
        advertised_url="http://Broker-1.example:9092",
        listen_allowed_hosts="proxy.example, Other.example.",
        listen_allowed_origins="https://console.example",
    )
)
LOCAL = "127.0.0.1:9092"


def headers(**stated: str) -> dict[bytes, bytes]:
    named = {name.replace("_", "-"): value for name, value in stated.items()}
    return {name.encode(): value.encode() for name, value in {"host": LOCAL, **named}.items()}


@pytest.mark.parametrize(
    "host",
    [
        LOCAL,
        "localhost",
        "LOCALHOST:1",
        "[::1]:9092",
        "127.8.9.1",
        "broker-1.example:9092",
        "proxy.example",
        "other.example.:80",
    ],
)
def test_names_of_this_server_are_allowed(host: str) -> None:
    assert NAMES.allow_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "8.8.8.8",
        "evil@127.0.0.1",
        "127.0.0.1:80:80",
        "[::1",
        "[::1]evil.example",
        "",
    ],
)
def test_a_foreign_or_malformed_host_is_refused(host: str) -> None:
    assert not NAMES.allow_host(host)


def test_a_host_has_its_name_without_port_and_root_dot() -> None:
    assert host_name("A.example.:80") == "a.example"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_rebound_name_is_refused_for_reads_too(method: str) -> None:
    assert isinstance(refusal(method, headers(host="evil.example"), NAMES), HostNotAllowed)


ORIGIN = {"origin": "http://evil.example"}
CROSS = {"sec_fetch_site": "cross-site"}


@pytest.mark.parametrize(
    ("method", "stated", "error"),
    [
        ("POST", ORIGIN, OriginNotAllowed),
        ("DELETE", ORIGIN, OriginNotAllowed),
        ("POST", {"origin": "null"}, OriginNotAllowed),
        ("POST", {"origin": "http://127.0.0.1:3000"}, OriginNotAllowed),
        ("POST", {"origin": f"http://{LOCAL}"}, None),
        ("POST", {"origin": "https://console.example", **CROSS}, None),
        ("GET", ORIGIN, None),
        ("GET", CROSS, OriginNotAllowed),
        ("POST", CROSS, OriginNotAllowed),
        ("GET", {**CROSS, "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}, None),
        (
            "GET",
            {**CROSS, "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"},
            OriginNotAllowed,
        ),
        ("POST", {**CROSS, "sec_fetch_mode": "navigate"}, OriginNotAllowed),
        ("GET", {"sec_fetch_site": "same-origin"}, None),
        ("POST", {"content_length": "5"}, UnsupportedFormat),
        ("POST", {"transfer_encoding": "chunked"}, UnsupportedFormat),
        ("POST", {"content_length": "0"}, None),
        ("DELETE", {}, None),
        ("POST", {"content_length": "5", "content_type": "application/json"}, None),
    ],
)
def test_what_a_page_of_another_origin_may_send(
    method: str, stated: dict[str, str], error: type[LeadlineError] | None
) -> None:
    found = refusal(method, headers(**stated), NAMES)
    assert (None if found is None else type(found)) is error


def test_a_handshake_is_refused_for_its_origin_though_it_is_a_get() -> None:
    assert isinstance(handshake_refusal(headers(**ORIGIN), NAMES), OriginNotAllowed)
    assert handshake_refusal(headers(), NAMES) is None
