"""Which processes make up a cluster on this machine, and how each is started.

The layout follows from the options and from what ran in the data directory before: ids and data
stay the same, and so do ports that are still free. Each command line is complete, port included,
so that running it again restarts the same service.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from leadline_cli.cluster_file import ClusterFile, Service
from leadline_cli.embedded_zookeeper import EnsembleMember, ServerConfig
from leadline_common.tcp_ports import LOOPBACK, ReservedPorts

DEFAULT_BROKERS = 3
DEFAULT_CONTROLLERS = 2
DEFAULT_COORDINATORS = 2


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What the user asks for; None means as before, or the default in a new directory.

    `settings` go to every service. Brokers are assigned to `racks` in turn.
    `zookeeper` is the connection string of an existing ensemble; without it, an ensemble of
    `zookeeper_members` servers is started.
    """

    data_dir: Path
    brokers: int | None = None
    controllers: int | None = None
    zookeeper: str | None = None
    zookeeper_members: int = 1
    coordinators: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    racks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """How to start one process. `name` is unique within the cluster, such as `broker-1`."""

    name: str
    id: int
    url: str
    argv: tuple[str, ...]
    log_dir: str | None = None
    rack: str | None = None

    def running_as(self, pid: int) -> Service:
        """Return its row of cluster.json."""
        return Service(self.id, self.url, pid, self.argv, self.log_dir, self.rack)


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """All processes of a cluster; `zookeeper` is the connection string."""

    data_dir: Path
    zookeeper: str
    zookeeper_servers: tuple[ServiceSpec, ...]
    controllers: tuple[ServiceSpec, ...]
    brokers: tuple[ServiceSpec, ...]
    coordinators: tuple[ServiceSpec, ...]

    @property
    def groups(self) -> tuple[tuple[ServiceSpec, ...], ...]:
        """The processes by kind, in the order of their start."""
        return (self.zookeeper_servers, self.controllers, self.brokers, self.coordinators)

    @property
    def services(self) -> tuple[ServiceSpec, ...]:
        """Controllers, brokers and coordinators."""
        return (*self.controllers, *self.brokers, *self.coordinators)

    @property
    def logs(self) -> Path:
        """The directory of the services' logs."""
        return self.data_dir / "logs"


def lay_out_cluster(
    options: ClusterOptions,
    before: ClusterFile | None,
    reserved: ReservedPorts,
) -> ClusterLayout:
    """Return the layout for `options` in a directory where `before` ran.

    Its ports are `reserved` until the caller releases them.
    """
    root = options.data_dir.resolve()
    known = before or ClusterFile("", "", (), ())
    brokers = _ids(options.brokers, known.brokers, DEFAULT_BROKERS)
    controllers = _ids(options.controllers, known.controllers, DEFAULT_CONTROLLERS)
    coordinators = _ids(options.coordinators, known.coordinators, DEFAULT_COORDINATORS)
    external = options.zookeeper or (
        known.zookeeper if before and not known.zookeeper_servers else None
    )
    ports = _Ports(known, reserved)
    servers = () if external else _zookeepers(options, known, root, reserved)
    connect = external or ",".join(urlsplit(server.url).netloc for server in servers)
    shared = {**options.settings, "zookeeper.connect": connect}
    racks = {service.id: service.rack for service in known.brokers}
    return ClusterLayout(
        root,
        connect,
        tuple(servers),
        tuple(_controller(number, ports, shared, root) for number in controllers),
        tuple(
            _broker(number, ports, shared, root, _rack(options.racks, number, racks))
            for number in brokers
        ),
        tuple(_service("coordinator", number, ports, shared) for number in coordinators),
    )


class _Ports:
    """Gives each service its previous port if that is free, or else a new one."""

    def __init__(self, known: ClusterFile, reserved: ReservedPorts) -> None:
        had = {
            **{("controller", service.id): _port(service) for service in known.controllers},
            **{("broker", service.id): _port(service) for service in known.brokers},
            **{("coordinator", service.id): _port(service) for service in known.coordinators},
        }
        # All of these before any new one, or a new one could be another service's previous port.
        self._kept = {service: port for service, port in had.items() if reserved.keep(port)}
        self._reserved = reserved

    def of(self, kind: str, number: int) -> int:
        return self._kept.get((kind, number)) or self._reserved.take()


def _ids(asked: int | None, known: Sequence[Service], default: int) -> list[int]:
    count = asked if asked is not None else (len(known) or default)
    ids = [service.id for service in known][:count]
    fresh = (number for number in range(1, count + len(ids) + 1) if number not in ids)
    return ids + [next(fresh) for _ in range(count - len(ids))]


def _port(service: Service) -> int:
    return urlsplit(service.url).port or 0


def _rack(racks: Sequence[str], number: int, known: Mapping[int, str | None]) -> str | None:
    return racks[(number - 1) % len(racks)] if racks else known.get(number)


def _zookeepers(
    options: ClusterOptions, known: ClusterFile, root: Path, reserved: ReservedPorts
) -> list[ServiceSpec]:
    before = known.zookeeper_servers
    if before and all(reserved.keep(_port(server)) for server in before):
        return [
            ServiceSpec(f"zookeeper-{server.id}", server.id, server.url, server.argv)
            for server in before
        ]
    count = len(before) or options.zookeeper_members
    servers = {n: (reserved.take(), reserved.take()) for n in range(1, count + 1)}
    specs = []
    for number in servers:
        port = reserved.take()
        member = EnsembleMember(number, servers) if count > 1 else None
        config = ServerConfig(root / f"zookeeper-{number}", port, member=member)
        url = f"zookeeper://{LOOPBACK}:{port}"
        specs.append(ServiceSpec(f"zookeeper-{number}", number, url, tuple(config.command())))
    return specs


def _controller(number: int, ports: _Ports, shared: Mapping[str, str], root: Path) -> ServiceSpec:
    """Specify a controller; by default its history is in the data directory."""
    history = f"sqlite:///{root / f'controller-{number}' / 'history.db'}"
    return _service("controller", number, ports, {"history.url": history, **shared})


def _service(
    kind: str,
    number: int,
    ports: _Ports,
    shared: Mapping[str, str],
    log_dir: str | None = None,
    rack: str | None = None,
) -> ServiceSpec:
    port = ports.of(kind, number)
    argv = service_command(kind, {**shared, f"{kind}.id": str(number), "listen.port": str(port)})
    url = f"http://{LOOPBACK}:{port}"
    return ServiceSpec(f"{kind}-{number}", number, url, argv, log_dir, rack)


def _broker(
    number: int, ports: _Ports, shared: Mapping[str, str], root: Path, rack: str | None
) -> ServiceSpec:
    log_dir = str(root / f"broker-{number}")
    settings = {**shared, "log.dir": log_dir, **({"broker.rack": rack} if rack else {})}
    return _service("broker", number, ports, settings, log_dir, rack)


def service_command(kind: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that runs one service in the foreground with `settings`."""
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return (sys.executable, "-m", "leadline_cli.service", kind, *flags)
