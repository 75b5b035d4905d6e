"""Certificates for services that tests run in their own process, and calls with any identity."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from leadline_cli.certificates import Authority
from leadline_cli.credentials import Credentials
from leadline_common.http.internal import PEER_KEY
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.public_tls import PublicTls, PublicTrust
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.http.tls import InternalTls
from leadline_common.identity import InternalAddress, Kind, ServiceIdentity
from leadline_common.rpc import JSON


@cache
def new_credentials() -> Credentials:
    """Return credentials of an authority of this process; they are removed with it."""
    directory = Path(tempfile.mkdtemp(prefix="leadline-identities-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Credentials(directory)


@cache
def tls_of(kind: Kind, service_id: int) -> InternalTls:
    """Return the certificate of a service, signed by the authority of this process."""
    return load_tls(new_credentials(), ServiceIdentity(kind, service_id))


@cache
def public_tls() -> PublicTls:
    """Return what a service of this process has for clients on 127.0.0.1."""
    credentials, broker = new_credentials(), ServiceIdentity("broker", 1)
    credentials.create_public([broker])
    return PublicTls.load(credentials.public_certificate_of(broker), None, "127.0.0.1")


@cache
def public_trust() -> PublicTrust:
    """Return what a client of such a service trusts."""
    public_tls()
    return PublicTrust.load(new_credentials().public_authority)


def credentials_for(identity: ServiceIdentity) -> dict[str, str]:
    """Return the settings of a service that a test starts by itself."""
    credentials = new_credentials()
    credentials.create([identity])
    return credentials.settings_of(identity)


def load_tls(credentials: Credentials, identity: ServiceIdentity) -> InternalTls:
    """Return the certificate of a service; make it if it is not there."""
    credentials.create([identity])
    return InternalTls.load(credentials.certificate_of(identity), credentials.authority)


def served_to(caller: ServiceIdentity, app: ASGIApp, paths: Collection[str]) -> ASGIApp:
    """Return an application whose requests to `paths` come over the internal listener."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") in paths:
            scope[PEER_KEY] = caller
        await app(scope, receive, send)

    return serve


async def call_as(
    caller: ServiceIdentity,
    to: InternalAddress,
    path: str,
    request: msgspec.Struct,
    *,
    timeout_ms: int = 60_000,
) -> bytes:
    """Send a request in JSON with the certificate of `caller`; return the body of the answer.

    Raises:
        LeadlineError: the service refused, or did not answer.

    """
    calls = ServiceCalls(PeerConnections(tls_of(caller.kind, caller.id)))
    try:
        return await calls.post_internal(to, path, msgspec.json.encode(request), JSON, timeout_ms)
    finally:
        await calls.close()


def issue_in_the_past(
    credentials: Credentials, identity: ServiceIdentity, days_ago: int, *, authority: bool = False
) -> None:
    """Replace a service's certificate, or the authority with it, by those of `days_ago`.

    They are valid for ten years; a negative number gives certificates of the future.
    """
    credentials.create([identity])
    then = datetime.now(UTC) - timedelta(days=days_ago)
    found = Authority.load(
        credentials.authority.read_bytes(), credentials.authority_key.read_bytes()
    )
    signer = Authority.new(then) if authority else found
    credentials.authority.write_bytes(signer.certificate_pem)
    credentials.authority_key.write_bytes(signer.key_pem)
    issued = signer.issue(identity, None if authority else then)
    credentials.certificate_of(identity).write_bytes(issued)
