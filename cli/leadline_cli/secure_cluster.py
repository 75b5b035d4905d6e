"""What `leadline up --secure` adds to a cluster: TLS for clients, tokens, and rights.

Everything that a secure cluster has, and another one has not, is here: files, settings of the
services, and how `leadline` itself then connects.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Final

import httpx

from leadline_cli.credentials import Credentials, write_private
from leadline_client.security import Authenticator, Security
from leadline_common.access.tokens import RANDOM_BYTES, Token, new_token, parse_token
from leadline_common.identity import ServiceIdentity, UnusableCredentials

SCHEME: Final = "https"


def create_files(credentials: Credentials, services: Iterable[ServiceIdentity]) -> None:
    """Make the files that the services of a secure cluster need, unless they are there.

    Raises:
        UnusableAuthority: the authority's files are incomplete or damaged, or it has expired.
        UnusableCredentials: the file of the administrator's token has something else.
        OSError: the directory cannot be written to.

    """
    credentials.create_public(services)
    token_in_file(credentials.admin_token)


def token_in_file(path: Path) -> Token:
    """Return the token in a file that only its owner can read; make it if it is not there.

    Raises:
        UnusableCredentials: the file has something else.
        OSError: it cannot be read or written.

    """
    if not path.exists():
        write_private(path, f"{new_token(secrets.token_bytes(RANDOM_BYTES))}\n".encode())
    found = parse_token(path.read_text().strip())
    if found is None:
        raise UnusableCredentials(f"{path} has no token; remove it, so that a new one is made")
    return found


def settings_of(credentials: Credentials, service: ServiceIdentity) -> dict[str, str]:
    """Return the settings of one service of a secure cluster."""
    return credentials.public_settings_of(service) | {"authentication": "required"}


def http_client(security: Security, *, timeout_s: float) -> httpx.AsyncClient:
    """Return a client for the services of a cluster, secure or not.

    Raises:
        UnusableClientCredentials: a file cannot be read, or does not have what it should.

    """
    authenticator = Authenticator(security)
    return httpx.AsyncClient(
        trust_env=False,
        timeout=timeout_s,
        verify=authenticator.tls,
        auth=_TokenAuthentication(authenticator),
    )


class _TokenAuthentication(httpx.Auth):
    """Shows the token; one that was replaced is tried once more. Raises TokenNotSent."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request, and again after the refusal of a former token."""
        url = request.url
        shown = self._authenticator.headers(url.scheme, url.host)
        request.headers.update(shown)
        response = yield request
        if response.status_code == httpx.codes.UNAUTHORIZED and self._authenticator.renew(shown):
            request.headers.update(self._authenticator.headers(url.scheme, url.host))
            yield request
