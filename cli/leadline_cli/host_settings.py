"""leadline.toml of a host, as an inventory says it.

The text has one line for each setting; those of one kind of service begin with the kind.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from leadline_cli.inventory import ZOOKEEPER, BadInventory, Host, Inventory
from leadline_common.identity import KINDS, Kind, ServiceIdentity
from leadline_common.settings import (
    BrokerSettings,
    ControllerSettings,
    CoordinatorSettings,
    ServiceSettings,
    SettingsError,
    load_settings,
)

SETTINGS_FILE: Final = "leadline.toml"
PORTS: Final[Mapping[Kind, int]] = {"broker": 9092, "controller": 9093, "coordinator": 9094}
INTERNAL_PORTS: Final[Mapping[Kind, int]] = {
    "broker": 9192,
    "controller": 9193,
    "coordinator": 9194,
}
ZOOKEEPER_PORT: Final = 2281
"""Where ZooKeeper's servers speak TLS with clients; they have no other port for them."""
QUORUM_PORT: Final = 2888
ELECTION_PORT: Final = 3888
WRITTEN: Final = "# Written by `leadline cluster init`: change the inventory, and run it again.\n"
_MODELS: Final[Mapping[Kind, type[ServiceSettings]]] = {
    "broker": BrokerSettings,
    "controller": ControllerSettings,
    "coordinator": CoordinatorSettings,
}
_OF_ONE_HOST: Final = ("id", "advertised.url", "internal.advertised.url")
_OF_ONE_KIND: Final = ("listen.port", "internal.listen.port")


def settings_file(inventory: Inventory, host: Host) -> str:
    """Return leadline.toml of a host.

    Raises:
        BadInventory: a setting has a value that no setting has, such as a date.

    """
    values = _settings_of(inventory, host)
    lines = [f"{_toml(name)} = {_toml(value, name)}\n" for name, value in values.items()]
    return WRITTEN + "".join(lines)


def check_settings(inventory: Inventory, host: Host) -> None:
    """Check that the services of a host accept what leadline.toml will say, and can run with it.

    Raises:
        BadInventory: a setting is wrong, would be that of all hosts or services, or two services
            would have the same port.

    """
    _check_scope(inventory)
    ports: dict[int, str] = {}
    if ZOOKEEPER in host.roles:
        ports = dict.fromkeys((ZOOKEEPER_PORT, QUORUM_PORT, ELECTION_PORT), ZOOKEEPER)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / SETTINGS_FILE
        file.write_text(settings_file(inventory, host), encoding="utf-8")
        for kind in host.kinds:
            found = _loaded(file, kind, host)
            _check_port(ports, found.listen_port, f"{kind}.listen.port", host)
            _check_port(ports, found.internal_listen_port, f"{kind}.internal.listen.port", host)


def _loaded(file: Path, kind: Kind, host: Host) -> ServiceSettings:
    try:
        found = load_settings(_MODELS[kind], flags={}, environment={}, config=file)
    except SettingsError as problem:
        raise BadInventory(f"settings of host {host.name}: {problem}") from None
    if found.authentication != "required":
        raise BadInventory(f"settings of host {host.name}: authentication is required")
    return found


def _settings_of(inventory: Inventory, host: Host) -> dict[str, Any]:
    """Return all settings by name; those of the inventory go first."""
    values: dict[str, Any] = {
        "authentication": "required",
        "listen.host": host.address,
        "tls.ca.file": "ca.pem",
        "internal.ca.file": "internal-ca.pem",
    }
    servers = inventory.with_role(ZOOKEEPER)
    if servers:
        connect = ",".join(f"{one.in_url}:{ZOOKEEPER_PORT}" for one in servers)
        values |= {"zookeeper.connect": connect, "zookeeper.tls.ca.file": "zookeeper-ca.pem"}
    stated = _flat(inventory.settings)
    for service in host.services:
        values |= _settings_of_service(inventory, host, service, stated)
    return values | stated


def _settings_of_service(
    inventory: Inventory, host: Host, service: ServiceIdentity, stated: Mapping[str, Any]
) -> dict[str, Any]:
    kind, name = service.kind, f"{service.kind}-{service.id}"
    port = stated.get(f"{kind}.listen.port", PORTS[kind])
    internal_port = stated.get(f"{kind}.internal.listen.port", INTERNAL_PORTS[kind])
    values: dict[str, Any] = {
        "id": service.id,
        "listen.port": port,
        "internal.listen.port": internal_port,
        "advertised.url": f"https://{host.in_url}:{port}",
        "internal.advertised.url": f"https://{host.in_url}:{internal_port}",
        "listen.tls.certificate.file": f"{name}-public.pem",
        "internal.certificate.file": f"{name}.pem",
        "zookeeper.credentials.file": f"zookeeper-{kind}",
    }
    if kind == "broker":
        values["log.dir"] = f"{relative(inventory.data)}/{name}"
        if host.rack:
            values["rack"] = host.rack
    if kind == "controller":
        values["data.dir"] = relative(inventory.data)
    return {f"{kind}.{key}": value for key, value in values.items()}


def relative(text: str) -> str:
    """Return a path as ZooKeeper takes it: a relative one begins with a dot."""
    return text if Path(text).is_absolute() else f"./{text}"


def _check_scope(inventory: Inventory) -> None:
    """Refuse settings that differ from host to host, or from kind to kind, but are stated for all.

    Raises:
        BadInventory: there is one.

    """
    stated = _flat(inventory.settings)
    for name in _OF_ONE_KIND:
        if name in stated:
            raise BadInventory(
                f"{name} differs from service to service: put it into [settings.KIND]"
            )
    for prefix in ("", *(f"{kind}." for kind in KINDS)):
        for name in (prefix + one for one in _OF_ONE_HOST):
            if name in stated:
                raise BadInventory(f"{name} differs from host to host, and follows from [[hosts]]")
        if prefix and f"{prefix}zookeeper.connect" in stated:
            raise BadInventory("zookeeper.connect is that of all services: put it into [settings]")


def _check_port(ports: dict[int, str], port: int, name: str, host: Host) -> None:
    """Note the port of a service.

    Raises:
        BadInventory: another one has it, or nobody could know it.

    """
    if port == 0:
        raise BadInventory(f"{name}: 0 is no port that others could know")
    if port in ports:
        raise BadInventory(f"host {host.name}: {ports[port]} and {name} have the same port, {port}")
    ports[port] = name


def _toml(value: Any, name: str = "") -> str:
    """Return a value as TOML has it.

    Raises:
        BadInventory: no setting has such a value.

    """
    if isinstance(value, str):
        # JSON escapes what TOML does, but for DEL, and its surrogate pairs are not TOML's.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_toml(one, name) for one in value)}]"
    raise BadInventory(f"settings: {name} is a text, a number, true, false or a list of them")


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else None
        found |= {prefix + key: value} if inner is None else inner
    return found
