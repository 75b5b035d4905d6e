"""An OpenID Connect issuer for tests: it has keys, describes itself over HTTP and signs tokens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "leadline-test"


@dataclass
class TestIssuer:
    """An issuer at `url`; `keys` are its private keys by id, `reads` how often they were read.

    `answer` is sent instead of the keys, and none is sent before `answers` is set. `headers` and
    `status` are those of the answer. `keys_url` is announced instead of the place of the keys,
    which are at `/others`, too.
    """

    __test__ = False

    url: str = "http://127.0.0.1"
    keys: dict[str, Any] = field(default_factory=dict)
    reads: int = 0
    answer: bytes | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    keys_url: str = ""
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    def add_rsa(self, key_id: str) -> None:
        """Make a key and announce it."""
        self.keys[key_id] = rsa.generate_private_key(65537, 2048)

    def add_ec(self, key_id: str) -> None:
        """Make a key of an elliptic curve and announce it."""
        self.keys[key_id] = ec.generate_private_key(ec.SECP256R1())

    @property
    def key_set(self) -> dict[str, Any]:
        """The public keys, as the issuer announces them (JWKS)."""
        return {"keys": [_public(name, key) for name, key in self.keys.items()]}

    def token(
        self, user: str, key_id: str, *, algorithm: str = "RS256", key: Any = None, **claims: Any
    ) -> str:
        """Return a token for a user; `claims` replace those that are usual, None leaves one out.

        Without a `key_id`, it names no key.
        """
        now = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + 600}
        payload = {name: value for name, value in (usual | claims).items() if value is not None}
        signing = self.keys[key_id] if key is None else key
        return jwt.encode(
            payload, signing, algorithm=algorithm, headers={"kid": key_id} if key_id else None
        )

    async def _describe(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"issuer": self.url, "jwks_uri": self.keys_url or f"{self.url}/keys"}
        )

    async def _keys(self, _: web.Request) -> web.Response:
        self.reads += 1
        await self.answers.wait()
        body = json.dumps(self.key_set).encode() if self.answer is None else self.answer
        return web.Response(body=body, status=self.status, headers=self.headers)

    async def _others(self, _: web.Request) -> web.Response:
        return web.json_response(self.key_set)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve the description and the keys on a free port of this machine."""
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._describe)
        app.router.add_get("/keys", self._keys)
        app.router.add_get("/others", self._others)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()


def _public(key_id: str, key: Any) -> dict[str, Any]:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        made = ECAlgorithm.to_jwk(key.public_key())
    else:
        made = RSAAlgorithm.to_jwk(key.public_key())
    return {**json.loads(made), "kid": key_id, "use": "sig"}
