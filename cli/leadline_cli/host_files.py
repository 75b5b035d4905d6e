"""The files that `leadline cluster init` makes of an inventory, a directory for each host.

    authority/       keys of the authorities, and all that they signed: stays with the operator
    admin/           what `leadline` needs to connect: ca.pem, zookeeper-ca.pem, the operator's
                     ZooKeeper user, and the administrator's token
    HOST/            leadline.toml, zoo.cfg, and the certificates and users of this host's services

Paths in a host's files are relative to its directory, so that it may be copied to anywhere. What
was made before is kept: another run adds hosts, and changes only what follows from the inventory.
A host that has lost a role loses the files of that role, as it would run what it finds.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leadline_cli import secure_cluster
from leadline_cli.certificates import is_for
from leadline_cli.credentials import Credentials, UnusableAuthority, write_private
from leadline_cli.embedded_zookeeper import MAX_SESSION_TIMEOUT_MS
from leadline_cli.host_settings import (
    ELECTION_PORT,
    QUORUM_PORT,
    SETTINGS_FILE,
    WRITTEN,
    ZOOKEEPER_PORT,
    check_settings,
    relative,
    settings_file,
)
from leadline_cli.inventory import ZOOKEEPER, BadInventory, Host, Inventory
from leadline_client.file_lock import FileLock
from leadline_common.identity import KINDS, UnusableCredentials
from leadline_common.zk.credentials import read_credentials

ZOOKEEPER_FILE: Final = "zoo.cfg"
AUTHORITY: Final = "authority"
ADMIN: Final = "admin"
_TICK_TIME_MS: Final = 500
_OF_A_ROLE: Final = re.compile(
    rf"zoo\.cfg|zookeeper-ca\.pem|zookeeper-server-\d+\.pem|zookeeper-({'|'.join(KINDS)})"
    rf"|({'|'.join(KINDS)})-\d+(-public)?\.pem"
)
"""Files that are on a host because of its roles: nothing else there is removed."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is new, or has another content than before; None: it is not needed any more."""

    path: Path
    content: bytes | None
    is_new: bool


class HostFiles:
    """Makes the files of one inventory in `directory`."""

    def __init__(self, inventory: Inventory, directory: Path) -> None:
        self._inventory = inventory
        self._directory = directory
        self._credentials = Credentials(directory / AUTHORITY)

    def create(self) -> list[Change]:
        """Write what is new or differs, readable for the owner only, and remove what is not needed.

        Return all of that.

        Raises:
            BadInventory: a setting is wrong, or a certificate names another address.
            UnusableAuthority: an authority's files are incomplete or damaged, or it has expired, or
                somebody else could exchange them.
            UnusableCredentials: another file in `authority` is damaged.
            OSError: the directory cannot be written to.

        """
        for host in self._inventory.hosts:
            check_settings(self._inventory, host)
        for directory in (self._directory, self._directory / AUTHORITY):
            _check_owner(directory)
        self._check_addresses()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._directory / ".lock"
        # Two at a time would write, rename and remove each other's files.
        with FileLock.acquire(lock):
            lock.chmod(0o600)
            self._create_credentials()
            return self._write()

    def _write(self) -> list[Change]:
        changes = [*self._changes()]
        for name in (ADMIN, *(host.name for host in self._inventory.hosts)):
            _make_private(self._directory / name)
        for change in changes:
            if change.content is None:
                change.path.unlink()
            else:
                write_private(change.path, change.content)
        return changes

    def forgotten(self) -> list[str]:
        """Return the directories of hosts that are not in the inventory any more."""
        known = {host.name for host in self._inventory.hosts}
        found = (path.parent.name for path in self._directory.glob(f"*/{SETTINGS_FILE}"))
        return sorted(set(found) - known)

    def _create_credentials(self) -> None:
        made = self._credentials
        made.create([one for host in self._inventory.hosts for one in host.services])
        for host in self._inventory.hosts:
            made.create_public(host.services, [host.address])
        servers = self._inventory.with_role(ZOOKEEPER)
        made.create_zookeeper({host.id: host.address for host in servers})
        secure_cluster.token_in_file(made.admin_token)
        for path in (made.zookeeper_operator, *map(made.zookeeper_user, KINDS)):
            read_credentials(path)

    def _check_addresses(self) -> None:
        """Refuse an address that the certificates of a host do not name.

        Raises:
            BadInventory: there is one.
            UnusableCredentials: a certificate is damaged.

        """
        made = self._credentials
        for host in self._inventory.hosts:
            paths = [made.public_certificate_of(one) for one in host.services]
            if ZOOKEEPER in host.roles:
                paths.append(made.zookeeper_certificate_of(host.id))
            for path in paths:
                if path.exists() and not _names(path, host.address):
                    raise BadInventory(
                        f"{path} does not name {host.address}, the address of host {host.name}: "
                        "remove that file, so that a new certificate is made"
                    )

    def _changes(self) -> Iterator[Change]:
        wanted = dict(self._wanted())
        for path, content in wanted.items():
            before = path.read_bytes() if path.exists() else None
            if before != content:
                yield Change(path, content, before is None)
        for host in self._inventory.hosts:
            for path in sorted((self._directory / host.name).glob("*")):
                if _OF_A_ROLE.fullmatch(path.name) and path not in wanted:
                    yield Change(path, None, is_new=False)

    def _wanted(self) -> Iterator[tuple[Path, bytes]]:
        """Yield all files outside of `authority`, with their content."""
        made, admin = self._credentials, self._directory / ADMIN
        shared = [made.public_authority, made.zookeeper_operator, made.admin_token]
        if self._inventory.with_role(ZOOKEEPER):
            shared.append(made.zookeeper_authority)
        for path in shared:
            yield admin / path.name, path.read_bytes()
        for host in self._inventory.hosts:
            own = self._directory / host.name
            yield own / SETTINGS_FILE, settings_file(self._inventory, host).encode()
            if ZOOKEEPER in host.roles:
                yield own / ZOOKEEPER_FILE, zookeeper_file(self._inventory, host).encode()
            for path in self._secrets_of(host):
                yield own / path.name, path.read_bytes()

    def _secrets_of(self, host: Host) -> Iterator[Path]:
        made = self._credentials
        if self._inventory.with_role(ZOOKEEPER):
            yield made.zookeeper_authority
        if ZOOKEEPER in host.roles:
            yield made.zookeeper_certificate_of(host.id)
        if host.services:
            yield from (made.public_authority, made.authority)
        for service in host.services:
            yield made.certificate_of(service)
            yield made.public_certificate_of(service)
            yield made.zookeeper_user(service.kind)


def _names(certificate: Path, host: str) -> bool:
    """Tell whether the certificate in a file names a host.

    Raises:
        UnusableCredentials: it is damaged.

    """
    try:
        return is_for(certificate.read_bytes(), host)
    except ValueError:
        raise UnusableCredentials(
            f"{certificate} has no certificate: remove that file, so that a new one is made"
        ) from None


def _check_owner(directory: Path) -> None:
    """Check that nobody else can put a key of their own into a directory, if it is there.

    Raises:
        UnusableAuthority: somebody can.

    """
    if not directory.exists():
        return
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise UnusableAuthority(f"{directory} is another user's, who could exchange the keys in it")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise UnusableAuthority(
            f"everybody can write to {directory}, and exchange the keys in it: `chmod o-w` it, and "
            "use no keys that are there if others had access to it"
        )


def _make_private(directory: Path) -> None:
    """Make a directory that nobody else may enter; one that is there may have another mode."""
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)


def zookeeper_file(inventory: Inventory, host: Host) -> str:
    """Return zoo.cfg of a host: TLS for clients and between servers, by one authority.

    Clients prove who they are by their ZooKeeper user, servers by their certificate.
    """
    certificate, authority = f"zookeeper-server-{host.id}.pem", "zookeeper-ca.pem"
    settings: dict[str, object] = {
        "dataDir": f"{relative(inventory.data)}/zookeeper",
        "secureClientPort": ZOOKEEPER_PORT,
        "secureClientPortAddress": host.address,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": certificate,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": authority,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "none",
        "sslQuorum": "true",
        "ssl.quorum.keyStore.location": certificate,
        "ssl.quorum.keyStore.type": "PEM",
        "ssl.quorum.trustStore.location": authority,
        "ssl.quorum.trustStore.type": "PEM",
        "tickTime": _TICK_TIME_MS,
        "maxSessionTimeout": MAX_SESSION_TIMEOUT_MS,
        "initLimit": 20,
        "syncLimit": 10,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,ruok",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
    }
    servers = inventory.with_role(ZOOKEEPER)
    if len(servers) > 1:
        for one in servers:
            settings[f"server.{one.id}"] = f"{one.in_url}:{QUORUM_PORT}:{ELECTION_PORT}"
    return WRITTEN + "".join(f"{name}={value}\n" for name, value in settings.items())
