"""How a client proves who it is, and which servers it trusts.

`Security` is what a user gives: names of files, perhaps a token. Each client makes one
`Authenticator` of it, which has the TLS context and the token that requests carry now.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Self

from leadline_client.errors import TokenNotSent, UnusableClientCredentials

CA_FILE_VARIABLE: Final = "LEADLINE_CA_FILE"
"""The environment variable with the authorities (PEM) whose certificates services may show."""
TOKEN_FILE_VARIABLE: Final = "LEADLINE_TOKEN_FILE"  # noqa: S105 - the name of a variable
"""The environment variable with the file of a client's token."""
CERTIFICATE_FILE_VARIABLE: Final = "LEADLINE_CERTIFICATE_FILE"
"""The environment variable with the file (PEM) of a client's certificate and its key."""

_KEY_LOG_VARIABLE: Final = "SSLKEYLOGFILE"
"""Python's own: where it writes the keys of connections, for those who record the traffic."""

_SENDABLE: Final = re.compile(r"[!-~]+")
_LONGEST_TOKEN: Final = 8192
"""In characters. Whatever is longer is no token, and may be a device that never ends."""
_ENCRYPTED: Final = frozenset({"https", "wss"})


@dataclass(frozen=True, slots=True)
class Security:
    """How clients connect to a cluster; the certificates' files are PEM.

    `ca_file`: the authorities that may sign the servers' certificates, in place of those of this
    machine. `certificate_file`: the client's certificate and its key, which has no password.
    `token` or `token_file`: what requests carry as a bearer token. The file is read when a client
    is made, and again when a server refuses the token, so a new token needs no restart.

    Raises:
        UnusableClientCredentials: no header can carry the token, or there are two.

    """

    ca_file: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    certificate_file: str | None = None

    def __post_init__(self) -> None:
        if self.token is None:
            return
        _check_token(self.token, "the token")
        if self.token_file is not None:
            raise UnusableClientCredentials("give a token or a token file, not both")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return what the three variables name; an empty one counts as not set."""
        return cls(
            ca_file=environment.get(CA_FILE_VARIABLE) or None,
            token_file=environment.get(TOKEN_FILE_VARIABLE) or None,
            certificate_file=environment.get(CERTIFICATE_FILE_VARIABLE) or None,
        )


class _FileState(NamedTuple):
    """A file as it was when it was looked at; replaced or changed, it has another value."""

    name: str
    path: str
    inode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, name: str, path: str | None) -> Self | None:
        """Return the state now; `name` is that of the option. Raises UnusableClientCredentials."""
        if path is None:
            return None
        try:
            found = Path(path).stat()
        except (OSError, ValueError) as problem:
            raise _unusable(name, path, problem) from None
        return cls(name, path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=16)
def _tls_context(ca: _FileState | None, certificate: _FileState | None) -> ssl.SSLContext:
    """Return the context of all clients with the same files: loading authorities is slow."""
    read = ca
    try:
        context = ssl.create_default_context(cafile=None if ca is None else ca.path)
        if certificate is not None:
            read = certificate
            # Without a function, OpenSSL would ask for a password on the terminal.
            context.load_cert_chain(certificate.path, password=_refuse_password)
    except (OSError, ValueError) as problem:
        keys = os.environ.get(_KEY_LOG_VARIABLE)
        if keys and getattr(problem, "filename", None) == keys:
            raise _unusable(_KEY_LOG_VARIABLE, keys, problem) from None
        if read is None:
            raise
        raise _unusable(read.name, read.path, problem) from None
    return context


class Authenticator:
    """The TLS context and the token of one client; any threads may share it.

    Raises:
        UnusableClientCredentials: a file cannot be read, or does not have what it should.

    """

    def __init__(self, security: Security) -> None:
        self.security = security
        self._token = security.token
        if security.token_file is not None:
            self._token = _read_token(security.token_file)
        self._tls: ssl.SSLContext | None = None
        if security.ca_file or security.certificate_file:
            # Files that cannot be used are an error now, not of the first request.
            self._tls = _tls_context(
                _FileState.of(f"ca_file or {CA_FILE_VARIABLE}", security.ca_file),
                _FileState.of(
                    f"certificate_file or {CERTIFICATE_FILE_VARIABLE}", security.certificate_file
                ),
            )

    @property
    def tls(self) -> ssl.SSLContext:
        """The context for connections over TLS."""
        if self._tls is None:
            self._tls = _tls_context(None, None)
        return self._tls

    def headers(self, scheme: str, host: str | None) -> dict[str, str]:
        """Return the headers that show a server who the client is.

        Raises:
            TokenNotSent: others could read the token on its way to `host`.

        """
        if self._token is None:
            return {}
        if scheme not in _ENCRYPTED and not _is_loopback(host):
            raise TokenNotSent.to(scheme, host)
        return {"authorization": f"Bearer {self._token}"}

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Tell whether there is another token than the one in the headers that were refused.

        The file of the token is read again. If it has no usable token now, the answer is no,
        because the server's refusal says more.
        """
        path = self.security.token_file
        if path is None:
            return False
        if refused.get("authorization") == f"Bearer {self._token}":
            try:
                self._token = _read_token(path)
            except UnusableClientCredentials:
                return False
        return refused.get("authorization") != f"Bearer {self._token}"


def _check_token(token: str, name: str) -> None:
    """Refuse a token that no header can carry; the message does not contain it."""
    if len(token) > _LONGEST_TOKEN:
        raise UnusableClientCredentials(f"{name} is longer than {_LONGEST_TOKEN} characters")
    if not _SENDABLE.fullmatch(token):
        raise UnusableClientCredentials(
            f"{name} is empty, or holds blanks or characters outside printable ASCII"
        )


def _read_token(path: str) -> str:
    name = f"token_file or {TOKEN_FILE_VARIABLE}"
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LONGEST_TOKEN + len("\r\n") + 1)
    except (OSError, ValueError) as problem:
        raise _unusable(name, path, problem) from None
    # Every byte is a character: an error of decoding would quote the token.
    token = content.decode("latin-1").rstrip("\r\n")
    _check_token(token, f"{name}: the token in {path}")
    return token


def _unusable(name: str, path: str, problem: Exception) -> UnusableClientCredentials:
    reason = getattr(problem, "strerror", None) or str(problem)
    return UnusableClientCredentials(f"{name}: {path} cannot be used: {reason}")


def _refuse_password() -> str:
    raise ValueError("its key has a password: give one without")


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
