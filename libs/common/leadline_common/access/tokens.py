"""Tokens: `id.secret`, of which only the id and a hash are kept. Pure.

The secret has 256 random bits, so that a fast hash is enough: nobody can try them all. (A password
that a person chose would need a slow one.) The id is public: it finds the hash, and names the
token in lists and in the audit.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final, NamedTuple

import msgspec

RANDOM_BYTES: Final = 38
"""Random bytes that `new_token` needs: 6 for the id, 32 for the secret."""
_ID_BYTES: Final = 6
_FORM: Final = re.compile(r"([A-Za-z0-9_-]{8})\.([A-Za-z0-9_-]{43})")


class Token(NamedTuple):
    """A token as its owner has it; its text form is `id.secret`."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"{self.id}.{self.secret}"

    def __repr__(self) -> str:
        return f"Token(id={self.id!r})"


class KeptToken(msgspec.Struct, frozen=True):
    """What is kept of a token. Times are Unix ms; without `expires_ms` it is valid for ever."""

    id: str
    sha256: str
    created_ms: int
    expires_ms: int | None = None

    def is_alive(self, now_ms: int) -> bool:
        """Tell whether the token has not expired."""
        return self.expires_ms is None or now_ms < self.expires_ms

    def matches(self, token: Token) -> bool:
        """Tell whether this is kept of `token`, in a time that does not depend on the secret."""
        return hmac.compare_digest(self.sha256.encode(), hash_of(token).encode())


def new_token(random: bytes) -> Token:
    """Return a token made of `RANDOM_BYTES` random bytes."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a token takes {RANDOM_BYTES} random bytes, not {len(random)}")
    return Token(_encoded(random[:_ID_BYTES]), _encoded(random[_ID_BYTES:]))


def parse_token(text: str) -> Token | None:
    """Return the token of a text form, None if it is malformed."""
    match = _FORM.fullmatch(text)
    return Token(match[1], match[2]) if match else None


def hash_of(token: Token) -> str:
    """Return the SHA-256 of a token's text form, in hexadecimal digits."""
    return hashlib.sha256(str(token).encode()).hexdigest()


def token_in(authorization: str) -> Token | None:
    """Return the token in an `Authorization` header, None if there is none in a known form.

    It is a bearer token, or the user name and the password of HTTP's basic authentication, which
    browsers and clients of Kafka's REST API can send.
    """
    scheme, _, value = authorization.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return parse_token(value)
    if scheme.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(value, validate=True).decode("ascii").partition(":")
    except ValueError:  # Also that of a text beyond ASCII, which is no `binascii.Error`.
        return None
    return parse_token(f"{name}.{password}")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
