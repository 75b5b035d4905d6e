"""Which processes make up a cluster on this machine, and how each is started.

The layout follows from the options and from what ran in the data directory before: ids and data
stay the same, and so do ports that are still free. Each command line is complete, port included,
so that running it again restarts the same service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from leadline_cli import secure_cluster
from leadline_cli.cluster_file import ClusterFile, Service
from leadline_cli.credentials import credentials_in
from leadline_cli.embedded_zookeeper import EnsembleMember, ServerConfig, command_again
from leadline_cli.processes import module_command
from leadline_common.identity import Kind, ServiceIdentity
from leadline_common.tcp_ports import LOOPBACK, ReservedPorts

DEFAULT_BROKERS = 3
DEFAULT_CONTROLLERS = 2
DEFAULT_COORDINATORS = 2
PORTS_PER_KIND: Final = 100
PORT_RANGE: Final = 3 * PORTS_PER_KIND
"""How many ports a fixed layout takes, from its base on."""

SESSIONS: Final = "sessions"
"""The directory of the services' ZooKeeper sessions, for those who find one of them dead."""

SERVICE_MODULE: Final = "leadline_cli.service"

_KIND_OFFSETS: Final = {
    "broker": 0,
    "controller": PORTS_PER_KIND,
    "coordinator": 2 * PORTS_PER_KIND,
}


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What the user asks for; None means as before, or the default in a new directory.

    `settings` go to every service. With `port_base`, ports are fixed: ZooKeeper gets it, and each
    service one that follows from its kind and id (`fixed_port`). Brokers are assigned to `racks`
    in turn. In a `secure` cluster, clients connect over TLS.
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
    port_base: int | None = None
    secure: bool | None = None


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """How to start one process. `name` is unique within the cluster, such as `broker-1`.

    `session_file` is where it keeps its ZooKeeper session, `directory` where its data is.
    `imports` are the modules that it shares with others of its kind: it is forked from a process
    that has them. Without any, `argv` is executed.
    """

    name: str
    id: int
    url: str
    argv: tuple[str, ...]
    directory: Path
    log_dir: str | None = None
    rack: str | None = None
    imports: tuple[str, ...] = ()
    session_file: Path | None = None

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
    secure: bool = False

    @property
    def groups(self) -> tuple[tuple[ServiceSpec, ...], ...]:
        """The processes by kind, in the order of their start."""
        return (self.zookeeper_servers, self.controllers, self.brokers, self.coordinators)

    @property
    def services(self) -> tuple[ServiceSpec, ...]:
        """Controllers, brokers and coordinators."""
        return (*self.controllers, *self.brokers, *self.coordinators)

    @property
    def identities(self) -> tuple[ServiceIdentity, ...]:
        """All controllers, brokers and coordinators."""
        return (
            *(ServiceIdentity("controller", one.id) for one in self.controllers),
            *(ServiceIdentity("broker", one.id) for one in self.brokers),
            *(ServiceIdentity("coordinator", one.id) for one in self.coordinators),
        )

    @property
    def directories(self) -> list[Path]:
        """Where the processes have their data."""
        return [spec.directory for group in self.groups for spec in group]

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
    ports = _Ports(known, reserved, options.port_base)
    servers = () if external else _zookeepers(options, known, root, reserved)
    connect = external or ",".join(urlsplit(server.url).netloc for server in servers)
    secure = _is_secure(known) if options.secure is None else options.secure
    settings = {**options.settings, "zookeeper.connect": connect}
    common = _Common(root, ports, settings, secure)
    racks = {service.id: service.rack for service in known.brokers}
    return ClusterLayout(
        root,
        connect,
        tuple(servers),
        tuple(_service("controller", number, common) for number in controllers),
        tuple(_broker(number, common, _rack(options.racks, number, racks)) for number in brokers),
        tuple(_service("coordinator", number, common) for number in coordinators),
        secure,
    )


class _Ports:
    """Gives each service its fixed port, or its previous one if that is free, or else a new one."""

    def __init__(self, known: ClusterFile, reserved: ReservedPorts, base: int | None) -> None:
        self._base = base
        self._reserved = reserved
        self._kept: dict[tuple[str, int], int] = {}
        if base is not None:
            return
        had = {
            **{("controller", service.id): _port(service) for service in known.controllers},
            **{("broker", service.id): _port(service) for service in known.brokers},
            **{("coordinator", service.id): _port(service) for service in known.coordinators},
        }
        # All of these before any new one, or a new one could be another service's previous port.
        self._kept = {service: port for service, port in had.items() if reserved.keep(port)}

    def of(self, kind: str, number: int) -> int:
        if self._base is not None:
            return _keep(self._reserved, fixed_port(self._base, kind, number), f"{kind}-{number}")
        return self._kept.get((kind, number)) or self._reserved.take()


class PortTaken(OSError):
    """A fixed port is in use; the message names it."""


def fixed_port(base: int, kind: str, number: int) -> int:
    """Return the port of a service: brokers BASE+id, controllers BASE+100+id, coordinators +200.

    Raises:
        PortTaken: there are too many services of this kind for the range.

    """
    if not 0 < number < PORTS_PER_KIND:
        raise PortTaken(f"--port-base has no port for {kind}-{number}: ids go up to 99")
    return base + _KIND_OFFSETS[kind] + number


def _keep(reserved: ReservedPorts, port: int, name: str) -> int:
    if not reserved.keep(port):
        raise PortTaken(f"port {port} of {name} is in use: choose another --port-base")
    return port


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
    ServerConfig.check_installed()
    before = known.zookeeper_servers
    base = options.port_base
    if base is None and before and all(reserved.keep(_port(server)) for server in before):
        return [_zookeeper_again(server, root) for server in before]
    count = len(before) or options.zookeeper_members
    servers = {n: (reserved.take(), reserved.take()) for n in range(1, count + 1)}
    specs = []
    for number in servers:
        fixed = base is not None and count == 1
        port = _keep(reserved, base or 0, "zookeeper-1") if fixed else reserved.take()
        member = EnsembleMember(number, servers) if count > 1 else None
        name = f"zookeeper-{number}"
        config = ServerConfig(root / name, port, member=member)
        url, argv = f"zookeeper://{LOOPBACK}:{port}", tuple(config.command())
        specs.append(ServiceSpec(name, number, url, argv, config.data_dir))
    return specs


def _zookeeper_again(before: Service, root: Path) -> ServiceSpec:
    name = f"zookeeper-{before.id}"
    argv = tuple(command_again(before.argv, root / name))
    return ServiceSpec(name, before.id, before.url, argv, root / name)


def _is_secure(known: ClusterFile) -> bool:
    return any(urlsplit(one.url).scheme == secure_cluster.SCHEME for one in known.brokers)


@dataclass(frozen=True, slots=True)
class _Common:
    """What the services of a cluster have in common."""

    root: Path
    ports: _Ports
    settings: Mapping[str, str]
    secure: bool

    def settings_of(self, identity: ServiceIdentity) -> dict[str, str]:
        credentials = credentials_in(self.root)
        secure = secure_cluster.settings_of(credentials, identity) if self.secure else {}
        return {**self.settings, **credentials.settings_of(identity), **secure}


def _service(
    kind: Kind,
    number: int,
    common: _Common,
    log_dir: str | None = None,
    rack: str | None = None,
) -> ServiceSpec:
    port = common.ports.of(kind, number)
    session_file = common.root / SESSIONS / f"{kind}-{number}"
    own = {
        f"{kind}.id": str(number),
        "listen.port": str(port),
        "zookeeper.session.file": str(session_file),
    }
    shared = common.settings_of(ServiceIdentity(kind, number))
    if kind == "controller":
        # Its history is there, unless the user sets another directory.
        shared = {"data.dir": str(common.root), **shared}
    own |= {"log.dir": log_dir} if log_dir else {}
    own |= {"broker.rack": rack} if rack else {}
    argv = service_command(kind, {**shared, **own})
    url = f"{secure_cluster.SCHEME if common.secure else 'http'}://{LOOPBACK}:{port}"
    imports = (SERVICE_MODULE, f"leadline_{kind}.main")
    name = f"{kind}-{number}"
    directory = common.root / name
    return ServiceSpec(name, number, url, argv, directory, log_dir, rack, imports, session_file)


def _broker(number: int, common: _Common, rack: str | None) -> ServiceSpec:
    return _service("broker", number, common, str(common.root / f"broker-{number}"), rack)


def service_command(kind: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that runs one service in the foreground with `settings`."""
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return module_command(SERVICE_MODULE, kind, *flags)
