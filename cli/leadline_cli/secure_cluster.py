"""What `leadline up --secure` adds to a cluster: clients see its services over TLS only.

Everything that a secure cluster has, and another one has not, is here: files, settings of the
services, and how `leadline` itself then connects.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import httpx

from leadline_cli.credentials import Credentials, credentials_in
from leadline_common.identity import ServiceIdentity

SCHEME: Final = "https"


def create_files(credentials: Credentials, services: Iterable[ServiceIdentity]) -> None:
    """Make the files that the services of a secure cluster need, unless they are there.

    Raises:
        UnusableAuthority: the authority's files are incomplete or damaged, or it has expired.
        OSError: the directory cannot be written to.

    """
    credentials.create_public(services)


def settings_of(credentials: Credentials, service: ServiceIdentity) -> dict[str, str]:
    """Return the settings of one service of a secure cluster."""
    return credentials.public_settings_of(service)


def http_client(data_dir: Path, *, timeout_s: float) -> httpx.AsyncClient:
    """Return a client for the services of the cluster in a data directory, secure or not.

    It trusts the cluster's authority, if there is one, and those of this machine.
    """
    authority = credentials_in(data_dir).public_authority
    trusted = ssl.create_default_context()
    if authority.exists():
        trusted.load_verify_locations(authority)
    return httpx.AsyncClient(trust_env=False, timeout=timeout_s, verify=trusted)
