"""What an inventory of hosts may say."""

from __future__ import annotations

from typing import Any

import pytest

from leadline_cli.inventory import BadInventory, parse_inventory

HOSTS: list[dict[str, Any]] = [
    {"name": "a", "address": "10.0.0.11", "id": 1, "rack": "r1"},
    {"name": "b", "address": "b.example.org", "id": 2},
    {"name": "c", "address": "2001:db8::3", "id": 3, "roles": ["broker", "zookeeper"]},
]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({}, "no hosts"),
        ({"hosts": []}, "no hosts"),
        ({"hosts": HOSTS, "host": 1}, "'host'"),
        ({"hosts": [{**HOSTS[0], "colour": "x"}]}, "'colour'"),
        ({"hosts": [{"name": "a", "id": 1}]}, "no address"),
        ({"hosts": [{**HOSTS[0], "name": "../a"}]}, "name is"),
        ({"hosts": [{**HOSTS[0], "name": "admin"}]}, "name is"),
        ({"hosts": [{**HOSTS[0], "address": "not a host"}]}, "address"),
        ({"hosts": [{**HOSTS[0], "address": "*.example.org"}]}, "address"),
        *[
            ({"hosts": [{**HOSTS[0], "address": address}]}, "address")
            for address in (
                *("10.0.0.256", "10.0.0", "::", "224.0.0.1", "ff02::1"),
                *("fe80::1%eth0", "fe80::1%a\nserver.9=x:1:1", ".".join(["a" * 60] * 5)),
                *(10, True, ["10.0.0.1"], None),
            )
        ],
        ({"hosts": [{**HOSTS[0], "id": True}]}, "id is a number"),
        ({"hosts": [{**HOSTS[0], "id": 0}]}, "id is a number"),
        ({"hosts": [{**HOSTS[0], "roles": ["brokers"]}]}, "roles are"),
        ({"hosts": [{**HOSTS[0], "roles": []}]}, "roles are"),
        ({"hosts": [HOSTS[0], {**HOSTS[1], "id": 1}]}, "2 hosts have the id 1"),
        ({"hosts": [HOSTS[0], {**HOSTS[1], "address": "10.0.0.11"}]}, "the address"),
        ({"hosts": [HOSTS[0], {**HOSTS[1], "name": "a"}]}, "the name"),
        ({"hosts": [HOSTS[1], {**HOSTS[0], "address": "B.Example.org"}]}, "the address"),
        ({"hosts": [HOSTS[2], {**HOSTS[0], "address": "2001:DB8:0::3"}]}, "the address"),
        ({"hosts": [{**HOSTS[0], "roles": ["zookeeper", "broker"]}]}, "no host has the role"),
        ({"hosts": [{**HOSTS[0], "roles": ["broker", "controller", "coordinator"]}]}, "ensemble"),
        ({"hosts": HOSTS, "settings": {"zookeeper": {"connect": "z:1"}}}, "ensemble"),
        ({"hosts": HOSTS, "settings": 3}, "settings is a table"),
        *[
            ({"hosts": HOSTS, "data": data}, "data is")
            for data in ("", "x\nserver.9=x:1:1", "x ", " x", "~/x", "a\\tb", "\u00e9", 3)
        ],
    ],
)
def test_an_inventory_that_cannot_be_is_refused(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInventory, match=reason):
        parse_inventory(document)


def test_advice_is_given_for_what_is_allowed_but_weak() -> None:
    two = parse_inventory({"hosts": HOSTS[:2]})
    assert any("ZooKeeper" in line for line in two.advice())
    assert any("brokers" in line for line in two.advice())
    assert (
        parse_inventory({"hosts": [*HOSTS[:2], {**HOSTS[2], "roles": list_of_all()}]}).advice()
        == []
    )


def list_of_all() -> list[str]:
    return ["zookeeper", "controller", "broker", "coordinator"]
