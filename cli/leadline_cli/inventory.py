"""The hosts of a cluster, as an operator lists them in a TOML file for `leadline cluster init`.

data = "/var/lib/leadline"          # where records are on each host

[settings]                          # of all services; a table [settings.broker] for one kind
min.insync.replicas = 2

[[hosts]]
name = "a"                          # the name of its directory
address = "10.0.0.11"               # how the others and the clients reach it
id = 1                              # of its broker, controller, coordinator and ZooKeeper
rack = "room-1"
roles = ["zookeeper", "controller", "broker", "coordinator"]
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from leadline_cli.certificates import name_of_host
from leadline_common.identity import KINDS, Kind, ServiceIdentity

ZOOKEEPER: Final = "zookeeper"
ROLES: Final = (ZOOKEEPER, *KINDS)
MAX_ID: Final = 255
"""The largest id of a ZooKeeper server; other services could have larger ones."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_DIRECTORY: Final = re.compile(r"(?![~ ])[ -\[\]-~]+(?<! )")
_MAX_ADDRESS: Final = 253
_RESERVED: Final = ("authority", "admin")
_HOST_KEYS: Final = {"name", "address", "id", "rack", "roles"}
_KEYS: Final = {"data", "settings", "hosts"}


class BadInventory(ValueError):
    """The file is no usable inventory; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Host:
    """One machine: `address` is a name or an IP address, `id` is that of all its services."""

    name: str
    address: str
    id: int
    rack: str = ""
    roles: tuple[str, ...] = ROLES

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of Leadline's services that run there."""
        return tuple(kind for kind in KINDS if kind in self.roles)

    @property
    def services(self) -> tuple[ServiceIdentity, ...]:
        """Leadline's services that run there."""
        return tuple(ServiceIdentity(kind, self.id) for kind in self.kinds)

    @property
    def in_url(self) -> str:
        """The address as URLs and ZooKeeper's settings have it."""
        return f"[{self.address}]" if ":" in self.address else self.address


@dataclass(frozen=True, slots=True)
class Inventory:
    """All hosts, and what their services have in common.

    Invariant: names, addresses and ids differ from host to host; there is a controller, a broker
    and a coordinator, and a ZooKeeper, if only one that exists already.
    """

    hosts: tuple[Host, ...]
    data: str = "data"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def with_role(self, role: str) -> tuple[Host, ...]:
        """Return the hosts that have a role."""
        return tuple(host for host in self.hosts if role in host.roles)

    def advice(self) -> list[str]:
        """Return what is allowed and yet is probably not meant."""
        servers, brokers = len(self.with_role(ZOOKEEPER)), len(self.with_role("broker"))
        found = []
        if servers and servers % 2 == 0:
            found.append(
                f"{servers} ZooKeeper servers survive no more failures than {servers - 1} do"
            )
        found += [
            f"one {kind}: nothing takes over while its host is away"
            for kind in ("controller", "coordinator")
            if len(self.with_role(kind)) == 1
        ]
        if brokers < 3:
            found.append("fewer than three brokers: no partition can lose one and stay writable")
        return found


def read_inventory(path: Path) -> Inventory:
    """Return the inventory in a file.

    Raises:
        BadInventory: it cannot be read, or is none.

    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise BadInventory(f"cannot read {path}: {problem}") from problem
    try:
        return parse_inventory(document)
    except BadInventory as problem:
        raise BadInventory(f"{path}: {problem}") from None


def parse_inventory(document: Mapping[str, Any]) -> Inventory:
    """Return the inventory that a TOML document describes.

    Raises:
        BadInventory: something is missing, unknown, or there twice.

    """
    _check_keys("the inventory", document, _KEYS)
    rows = document.get("hosts")
    if not isinstance(rows, list) or not rows:
        raise BadInventory("there are no hosts: add a table [[hosts]] for each machine")
    hosts = tuple(_host(row, position) for position, row in enumerate(rows, 1))
    data, settings = document.get("data", "data"), document.get("settings", {})
    if not isinstance(data, str) or not _DIRECTORY.fullmatch(data):
        raise BadInventory(
            "data is the name of a directory in printable ASCII without backslashes, as "
            "ZooKeeper's settings have no other; it begins with no `~`"
        )
    if not isinstance(settings, dict):
        raise BadInventory("settings is a table: [settings]")
    for name in ("name", "address", "id"):
        _check_different(name, [getattr(host, name) for host in hosts])
    found = Inventory(hosts, data, settings)
    _check_roles(found)
    return found


def _host(row: object, position: int) -> Host:
    where = f"host {position}"
    if not isinstance(row, dict):
        raise BadInventory(f"{where} is no table")
    _check_keys(where, row, _HOST_KEYS)
    missing = sorted({"name", "address", "id"} - set(row))
    if missing:
        raise BadInventory(f"{where} has no {', '.join(missing)}")
    name, address, number = row["name"], row["address"], row["id"]
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise BadInventory(
            f"{where}: name is lower-case letters, digits, dots and dashes, and not one of "
            f"{', '.join(_RESERVED)}; it is {name!r}"
        )
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MAX_ID:
        raise BadInventory(f"host {name}: id is a number from 1 to {MAX_ID}, not {number!r}")
    rack, roles = row.get("rack", ""), row.get("roles", list(ROLES))
    if not isinstance(rack, str):
        raise BadInventory(f"host {name}: rack is a text")
    if not isinstance(roles, list) or not roles or not all(role in ROLES for role in roles):
        raise BadInventory(f"host {name}: roles are some of {', '.join(ROLES)}")
    ordered = tuple(role for role in ROLES if role in roles)
    return Host(name, _address(name, address), number, rack, ordered)


def _address(name: str, address: object) -> str:
    """Return the address of a host in the one form that everybody compares.

    Raises:
        BadInventory: it is not that of one host.

    """
    if not isinstance(address, str):
        raise BadInventory(f"host {name}: address is a text, not {address!r}")
    try:
        found = name_of_host(address).value
    except ValueError as problem:
        raise BadInventory(f"host {name}: address: {problem}") from None
    if isinstance(found, str):
        is_one = "*" not in found and len(found) <= _MAX_ADDRESS
        # No name ends with a number, but a mistyped IP address does.
        is_one = is_one and not found.rpartition(".")[2].isdecimal()
    else:
        # A zone, as in fe80::1%eth0, means something else on each host.
        is_one = "%" not in address and not (found.is_unspecified or found.is_multicast)
    if not is_one:
        raise BadInventory(f"host {name}: address names one host for all others, not {address!r}")
    return str(found).lower()


def _check_keys(where: str, table: Mapping[str, Any], known: set[str]) -> None:
    for name in table:
        if name not in known:
            raise BadInventory(f"{where} has {name!r}, which is none of {', '.join(sorted(known))}")


def _check_different(name: str, values: Sequence[Any]) -> None:
    for value, count in Counter(values).items():
        if count > 1:
            raise BadInventory(f"{count} hosts have the {name} {value!r}")


def _check_roles(inventory: Inventory) -> None:
    for kind in KINDS:
        if not inventory.with_role(kind):
            raise BadInventory(f"no host has the role {kind}")
    stated = inventory.settings.get("zookeeper", {})
    existing = "zookeeper.connect" in inventory.settings or (
        isinstance(stated, dict) and "connect" in stated
    )
    if bool(inventory.with_role(ZOOKEEPER)) == existing:
        raise BadInventory(
            "give hosts the role zookeeper, or name an ensemble that exists by zookeeper.connect "
            "in [settings]; not both"
        )
