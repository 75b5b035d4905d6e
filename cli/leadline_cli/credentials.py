"""The credentials of one cluster, in files of one directory.

    internal-ca.pem, internal-ca.key   the authority that signs certificates of this cluster only
    broker-1.pem, controller-2.pem …   a service's certificate for the others, with its key
    zookeeper-ca.pem, zookeeper-ca.key the authority of the certificates of ZooKeeper's servers
    zookeeper-server-1.pem …           a ZooKeeper server's certificate, with its key
    ca.pem, ca.key                     the authority of the certificates that clients see
    broker-1-public.pem …              a service's certificate for clients, with its key
    admin.token                        what `leadline` shows services that ask for a token
    zookeeper-controller …             a kind's ZooKeeper user, and the digests of all others
    zookeeper-operator                 the same of a person, who may change everything
    zookeeper-services                 one user for all services, of an earlier release

Only their owner can read them (0600). Files that exist are kept.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leadline_cli.authorities import INTERNAL, PUBLIC, ZOOKEEPER
from leadline_client.file_lock import FileLock
from leadline_client.security import Security
from leadline_common.identity import KINDS, Kind, ServiceIdentity
from leadline_common.zk.credentials import ZkCredentials, digest_of, read_credentials

if TYPE_CHECKING:
    from leadline_cli.certificates import Authority

DIRECTORY: Final = "credentials"
"""Where `leadline up` keeps them, below the data directory."""

_PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE_FILE: Final = 0o600
LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_PASSWORD_BYTES: Final = 32
_SIGNED_BY: Final[Mapping[str, str]] = {
    INTERNAL: "*-*[0-9].pem",
    PUBLIC: "*-public.pem",
    ZOOKEEPER: "zookeeper-server-*.pem",
}
"""The files that an authority has signed, or some more."""


class UnusableAuthority(OSError):
    """The directory has a certificate or a key of the authority that cannot be used."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files in one directory."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The certificate of the authority."""
        return self.directory / "internal-ca.pem"

    @property
    def authority_key(self) -> Path:
        """The key of the authority: whoever has it can be any service."""
        return self.directory / "internal-ca.key"

    @property
    def public_authority(self) -> Path:
        """The certificate of the authority that clients trust."""
        return self.directory / "ca.pem"

    @property
    def public_authority_key(self) -> Path:
        """The key of that authority: whoever has it can pass for any service with clients."""
        return self.directory / "ca.key"

    def zookeeper_user(self, kind: Kind) -> Path:
        """Return the file with the ZooKeeper user of one kind of service, and all digests."""
        return self.directory / f"zookeeper-{kind}"

    @property
    def admin_token(self) -> Path:
        """The token of `leadline` itself, if services ask for one."""
        return self.directory / "admin.token"

    @property
    def zookeeper_services(self) -> Path:
        """The user that all services shared in an earlier release; `up` removes it."""
        return self.directory / "zookeeper-services"

    @property
    def zookeeper_operator(self) -> Path:
        """The ZooKeeper user of a person who edits nodes by hand, and all digests."""
        return self.directory / "zookeeper-operator"

    @property
    def zookeeper_authority(self) -> Path:
        """The certificate of the authority that ZooKeeper's clients and servers trust."""
        return self.directory / "zookeeper-ca.pem"

    @property
    def zookeeper_authority_key(self) -> Path:
        """The key of that authority: whoever has it can be a ZooKeeper server."""
        return self.directory / "zookeeper-ca.key"

    def zookeeper_certificate_of(self, server_id: int) -> Path:
        """Return the file with the certificate of a ZooKeeper server, and its key."""
        return self.directory / f"zookeeper-server-{server_id}.pem"

    def zookeeper_administrator(self) -> ZkCredentials:
        """Return what the operator logs in with.

        Raises:
            UnusableCredentials: the operator's file cannot be read, or has another form.

        """
        return read_credentials(self.zookeeper_operator)

    def certificate_of(self, service: ServiceIdentity) -> Path:
        """Return the file with the certificate and key of a service."""
        return self.directory / f"{service.kind}-{service.id}.pem"

    def public_certificate_of(self, service: ServiceIdentity) -> Path:
        """Return the file with the certificate that a service shows to clients, and its key."""
        return self.directory / f"{service.kind}-{service.id}-public.pem"

    def settings_of(self, service: ServiceIdentity) -> dict[str, str]:
        """Return the settings that make a service use these files."""
        return {
            "zookeeper.credentials.file": str(self.zookeeper_user(service.kind)),
            "internal.certificate.file": str(self.certificate_of(service)),
            "internal.ca.file": str(self.authority),
        }

    def create(self, services: Iterable[ServiceIdentity]) -> list[Path]:
        """Make what is missing for these services; return the new files of services and users.

        Raises:
            UnusableAuthority: the authority's files are incomplete or damaged, or it has expired.
            OSError: the directory cannot be written to.

        """
        with self._locked():
            return [*self._create_zookeeper_users(), *self._create_certificates(services)]

    def public_settings_of(self, service: ServiceIdentity) -> dict[str, str]:
        """Return the settings that make a service speak TLS with clients."""
        return {
            "listen.tls.certificate.file": str(self.public_certificate_of(service)),
            "tls.ca.file": str(self.public_authority),
        }

    def create_public(
        self, services: Iterable[ServiceIdentity], hosts: Iterable[str] = ()
    ) -> list[Path]:
        """Make what is missing so that these services can speak TLS; return their new files.

        The certificates name this machine's loopback addresses, and `hosts`.

        Raises:
            UnusableAuthority: the authority's files are incomplete or damaged, or it has expired.
            OSError: the directory cannot be written to.
            ValueError: a host is neither a name in ASCII nor an IP address.

        """
        names = (*LOOPBACK_HOSTS, *hosts)
        with self._locked():
            missing = {
                path: service
                for service in services
                if not (path := self.public_certificate_of(service)).exists()
            }
            if missing:
                authority = _authority(self.public_authority, self.public_authority_key, PUBLIC)
                for path, service in missing.items():
                    write_private(path, authority.issue_public(service, names))
            return list(missing)

    def create_zookeeper(self, servers: Mapping[int, str]) -> list[Path]:
        """Make what is missing so that ZooKeeper's servers, hosts by id, can speak TLS.

        Raises:
            UnusableAuthority: the authority's files are incomplete or damaged, or it has expired.
            OSError: the directory cannot be written to.
            ValueError: a host is neither a name in ASCII nor an IP address.

        """
        made = []
        with self._locked():
            for number, host in servers.items():
                path = self.zookeeper_certificate_of(number)
                if not path.exists():
                    authority = _authority(
                        self.zookeeper_authority, self.zookeeper_authority_key, ZOOKEEPER
                    )
                    write_private(path, authority.issue_zookeeper(number, host))
                    made.append(path)
        return made

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Create the directory, and keep other processes from making the same files."""
        self.directory.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        self.directory.chmod(_PRIVATE_DIRECTORY)
        # Two at a time could make two authorities, and sign with both.
        lock = self.directory / ".lock"
        with FileLock.acquire(lock):
            lock.chmod(_PRIVATE_FILE)
            yield

    def _create_zookeeper_users(self) -> list[Path]:
        """Make the users that are missing, and add their digests to every file.

        The files of services that exist keep all that they have: they may be those of a rotation.
        """
        files = [self.zookeeper_operator, *(self.zookeeper_user(kind) for kind in KINDS)]
        names = ["operator", *KINDS]
        missing = [path for path in files if not path.exists()]
        lines = {
            path: [_new_login(name)] if path in missing else path.read_text().split()
            for path, name in zip(files, names, strict=True)
        }
        users = [digest_of(own[0]) for own in lines.values() if own]
        made = [digest_of(lines[path][0]) for path in missing]
        for path, own in lines.items():
            if not own:
                continue
            # An earlier release's operator has no digests. Files that an interrupted run has
            # written have those of logins that were never written, and not those made now.
            is_alone = path == self.zookeeper_operator and len(own) == 1
            known = users if path in missing or is_alone else made
            others = [user for user in known if user not in (*own, digest_of(own[0]))]
            if path in missing or others:
                write_private(path, "\n".join((*own, *others, "")).encode())
        return missing

    def _create_certificates(self, services: Iterable[ServiceIdentity]) -> list[Path]:
        missing = [service for service in services if not self.certificate_of(service).exists()]
        if not missing:
            return []
        authority = _authority(self.authority, self.authority_key, INTERNAL)
        for service in missing:
            write_private(self.certificate_of(service), authority.issue(service))
        return [self.certificate_of(service) for service in missing]


def _authority(certificate: Path, key: Path, name: str) -> Authority:
    """Return the authority in two files; make it if there is none."""
    # Imported late: cryptography is slow to load, and most commands need only paths from here.
    authority_type: type[Authority] = import_module("leadline_cli.certificates").Authority
    if not certificate.exists() and not key.exists():
        authority = authority_type.new(name_text=name)
        write_private(key, authority.key_pem)
        write_private(certificate, authority.certificate_pem)
        return authority
    try:
        if not certificate.exists() and not any(certificate.parent.glob(_SIGNED_BY[name])):
            # A run that was interrupted has written the key, and signed nothing with it.
            made = authority_type.of_key(key.read_bytes(), name)
            write_private(certificate, made.certificate_pem)
        found = authority_type.load(certificate.read_bytes(), key.read_bytes())
        found.require_valid()
    except (OSError, ValueError) as problem:
        raise UnusableAuthority(
            f"{certificate} and {key} cannot be used: {problem}; restore them, or remove both and "
            "every certificate, so that new ones are made"
        ) from None
    return found


def credentials_in(data_dir: Path) -> Credentials:
    """Return the credentials of the cluster that `leadline up` runs in a data directory."""
    return Credentials(data_dir / DIRECTORY)


def client_security(data_dir: Path, given: Security | None = None) -> Security:
    """Return how to connect to the cluster of a data directory, with the files that are there.

    Those that `given` names go first.
    """
    chosen = given or Security()
    found = credentials_in(data_dir)
    return replace(
        chosen,
        ca_file=chosen.ca_file or _existing(found.public_authority),
        token_file=chosen.token_file or _existing(found.admin_token),
    )


def _existing(path: Path) -> str | None:
    # Unlike Path.exists, it raises nothing in a directory that only another user may enter.
    return str(path.absolute()) if os.path.isfile(path) else None  # noqa: PTH113 - Path.is_file would raise


def _new_login(user: str) -> str:
    return f"{user}:{secrets.token_urlsafe(_PASSWORD_BYTES)}"


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; it appears whole or not at all."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
