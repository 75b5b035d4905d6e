"""Tokens that an OpenID Connect issuer signed: which user of the cluster one names.

A token (JWT, RFC 7519) names somebody; what that user may do is granted in the cluster, as for
every other user. The checks follow RFC 8725: the algorithms come from the issuer's key and a list
here, never from the token, and issuer, audience and times are required.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import jwt

from leadline_client.errors import Unauthorized
from leadline_common.access.principals import Principal, is_user_name

LEEWAY_S: Final = 30
"""How much the clocks of the issuer and of this machine may differ."""
_EMAIL: Final = "email"
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The algorithms of each type of key: only those whose verifier cannot sign."""
_REASONS: Final = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not valid yet"),
    (jwt.InvalidAudienceError, "it is for another audience than `oidc.audience`"),
    (jwt.InvalidIssuerError, "another issuer than `oidc.issuer` made it"),
    (jwt.InvalidSignatureError, "its signature does not match"),
    (jwt.MissingRequiredClaimError, "a required claim is missing"),
)


@dataclass(frozen=True, slots=True)
class Issuer:
    """What the settings say of the issuer: who it is, and which claim names a user."""

    url: str
    audience: str
    user_claim: str = "sub"
    user_prefix: str = ""


class UnknownKey(Exception):
    """A token is signed with a key that is not among those which were read."""

    def __init__(self, key_id: str) -> None:
        super().__init__(key_id)
        self.key_id = key_id


class WrongSignature(Exception):
    """A token is not signed with the key that was read under the id that it names."""


class SigningKey(NamedTuple):
    """A public key of the issuer, and the algorithms with which it may be used."""

    key: jwt.PyJWK
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    """The keys of an issuer by id, as they were at one time."""

    by_id: Mapping[str, SigningKey]

    @classmethod
    def of(cls, found: object) -> Self:
        """Return the keys of a set (JWKS, RFC 7517) whose signatures nobody else can make.

        Raises:
            ValueError: it has none.

        """
        keys = found.get("keys") if isinstance(found, dict) else None
        usable = [_signing_key(one) for one in (keys if isinstance(keys, list) else ())]
        by_id = {one.key.key_id or "": one for one in usable if one is not None}
        if not by_id:
            raise ValueError("there is no public key for signatures in it")
        return cls(by_id)

    def key_of(self, token: str) -> SigningKey:
        """Return the key that a token claims to be signed with.

        Raises:
            Unauthorized: the token has no readable header.
            UnknownKey: no such key was read.

        """
        try:
            key_id = jwt.get_unverified_header(token).get("kid", "")
        except (jwt.PyJWTError, ValueError):
            raise Unauthorized("the token is malformed") from None
        if key_id == "" and len(self.by_id) == 1:
            return next(iter(self.by_id.values()))
        found = self.by_id.get(key_id) if isinstance(key_id, str) else None
        if found is None:
            raise UnknownKey(str(key_id))
        return found


def issued_token_in(authorization: str) -> str | None:
    """Return the bearer token of a header if it has the form of those that issuers sign."""
    scheme, _, value = authorization.partition(" ")
    token = value.strip()
    return token if scheme.lower() == "bearer" and _FORM.fullmatch(token) else None


def user_of(token: str, keys: IssuerKeys, issuer: Issuer) -> Principal:
    """Return the user that a token names, by the clock of this machine.

    Raises:
        Unauthorized: the token is not the issuer's, not for this cluster, not valid now, or names
            nobody who could be a user.
        UnknownKey: its key was not read.
        WrongSignature: it is of another key than the one that was read.

    """
    key = keys.key_of(token)
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key.key,
            algorithms=key.algorithms,
            audience=issuer.audience,
            issuer=issuer.url,
            leeway=LEEWAY_S,
            options={
                "require": ["exp", "iat", "iss", "aud", issuer.user_claim],
                "enforce_minimum_key_length": True,
            },
        )
    except jwt.InvalidSignatureError as problem:
        raise WrongSignature(f"the token was refused: {_reason(problem)}") from None
    except (jwt.PyJWTError, ValueError) as problem:
        raise Unauthorized(f"the token was refused: {_reason(problem)}") from None
    # Issuers let people enter any address, and say with this claim whether it is theirs.
    if issuer.user_claim == _EMAIL and claims.get(f"{_EMAIL}_verified", True) is not True:
        raise Unauthorized("the issuer has not verified the address in the claim `email`")
    claimed = claims[issuer.user_claim]
    name = f"{issuer.user_prefix}{claimed}" if isinstance(claimed, str) else ""
    if not is_user_name(name):
        raise Unauthorized(f"the claim `{issuer.user_claim}` of the token is no user's name")
    return Principal("user", name)


def _signing_key(found: object) -> SigningKey | None:
    """Return a key of a set; None if it is damaged, secret, or not for signatures."""
    if not isinstance(found, dict) or found.get("use", "sig") != "sig":
        return None
    if not isinstance(found.get("kid", ""), str):
        return None
    allowed = _ALGORITHMS.get(str(found.get("kty")), ())
    stated = found.get("alg")
    algorithms = tuple(one for one in allowed if stated in (None, one))
    if not algorithms:
        return None
    try:
        return SigningKey(jwt.PyJWK(found), algorithms)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        return None


def _reason(problem: Exception) -> str:
    return next(
        (text for kind, text in _REASONS if isinstance(problem, kind)), "it cannot be verified"
    )
