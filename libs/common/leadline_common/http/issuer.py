"""The keys of the OpenID Connect issuer: read at the start, and again when they change.

They are read every few minutes, and at once, but not too often, when a token names a key that is
not there: issuers announce a new key before or when they begin to use it. Only a key that was not
there when they were read after a token had named it is said to be unknown. Some issuers replace a
key and keep its id, or give none: a signature that does not match has the keys read, too, but at
most once a minute. While the issuer cannot be reached, the keys that were read last stay in use.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog

from leadline_client.errors import Unauthorized, UsersNotRead
from leadline_common.access.issued_tokens import (
    Issuer,
    IssuerKeys,
    UnknownKey,
    WrongSignature,
    user_of,
)
from leadline_common.access.principals import Principal
from leadline_common.http.listeners import is_loopback
from leadline_common.identity import UnusableCredentials
from leadline_common.keep_running import keep_running
from leadline_common.problems import Problem
from leadline_common.settings import ServiceSettings

REFRESH_S: Final = 300.0
"""How often the keys are read again."""
RETRY_S: Final = 5.0
"""The least time between two reads, however many tokens name keys that are not there."""
DOUBT_S: Final = 60.0
"""The least time between reads because of signatures that do not match: anybody can make some."""
LATE_S: Final = 60.0
"""For how long reads may fail before the service says that it may not know the issuer's keys."""
_TIMEOUT_S: Final = 10
_TIMEOUT: Final = aiohttp.ClientTimeout(total=_TIMEOUT_S)
_LARGEST: Final = 1 << 20
_MOST_AWAITED: Final = 100
"""How many ids of keys that tokens name are kept until the keys are read: anybody may make some."""
_DISCOVERY: Final = "/.well-known/openid-configuration"

logger = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class IssuerClient:
    """Knows the keys of an issuer, and thereby the users whom its tokens name."""

    issuer: Issuer
    keys_url: str = ""
    tls: ssl.SSLContext | bool = True
    clock: Callable[[], float] = time.monotonic
    keys: IssuerKeys | None = field(default=None, init=False)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _awaited: set[str] = field(default_factory=set, init=False)
    """Ids of keys that tokens have named since the keys were begun to be read."""
    _missing: set[str] = field(default_factory=set, init=False)
    """Ids of keys that tokens had named before the keys were read, and that were not there."""
    _tried_at: float = field(default=float("-inf"), init=False)
    _doubted_at: float = field(default=float("-inf"), init=False)
    _is_read: bool = field(default=False, init=False)
    _failure: str = field(default="", init=False)
    _failing_since: float = field(default=float("inf"), init=False)

    def problems(self) -> Iterator[Problem]:
        """Yield why tokens of the issuer are refused, or may be; other users notice nothing."""
        failing_s = self.clock() - self._failing_since
        if failing_s < (LATE_S if self.keys is not None else 0):
            return
        consequence = (
            "its tokens get 503" if self.keys is None else "tokens that name a new key get 503"
        )
        yield Problem(
            f"the keys of the issuer {self.issuer.url} could not be read for {failing_s:.0f} s "
            f"({self._failure}): {consequence}",
            serving=True,
        )

    def user_of(self, token: str) -> Principal:
        """Return the user whom a token names.

        Raises:
            Unauthorized: the token is not valid, or nobody knows its key.
            UsersNotRead: its key may be among those that are to be read within seconds.

        """
        if self.keys is None:
            raise UsersNotRead("this service has not read the keys of the issuer of tokens yet")
        try:
            return user_of(token, self.keys, self.issuer)
        except UnknownKey as unknown:
            is_recent = self.clock() - self._tried_at < RETRY_S
            if is_recent and self._is_read and unknown.key_id in self._missing:
                raise Unauthorized("the issuer has no key with which the token is signed") from None
            if len(self._awaited) < _MOST_AWAITED:
                self._awaited.add(unknown.key_id)
            if not is_recent:
                self._wanted.set()
            raise UsersNotRead("the token's key is new: the issuer's keys are read again") from None
        except WrongSignature as wrong:
            if not self._is_doubtful():
                raise Unauthorized(str(wrong)) from None
            raise UsersNotRead("its key may be new: the issuer's keys are read again") from None

    def _is_doubtful(self) -> bool:
        """Tell whether a signature that does not match waits for a read of the keys."""
        now = self.clock()
        if now - self._doubted_at >= DOUBT_S and now - self._tried_at >= RETRY_S:
            self._doubted_at = now
            self._wanted.set()
        return self._tried_at < self._doubted_at

    async def run(self) -> None:
        """Keep `keys` up to date until this is cancelled."""
        connector = aiohttp.TCPConnector(ssl=self.tls)
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
            while True:
                await self._read(session)
                # Not before: tokens that came meanwhile would have the keys read twice in a row.
                self._wanted.clear()
                try:
                    async with asyncio.timeout(REFRESH_S if self._is_read else RETRY_S):
                        await self._wanted.wait()
                except TimeoutError:
                    continue

    async def _read(self, session: aiohttp.ClientSession) -> None:
        """Read the keys; what cannot be read changes nothing."""
        self._is_read = False
        awaited, self._awaited = self._awaited, set()
        try:
            found = await _json(session, await self._url(session))
            self.keys = IssuerKeys.of(found)
            self._is_read = True
            self._missing = awaited.difference(self.keys.by_id)
            self._failing_since = float("inf")
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as problem:
            self._failed(problem)
        self._tried_at = self.clock()

    def _failed(self, problem: Exception) -> None:
        is_late = isinstance(problem, TimeoutError)
        self._failure = f"no answer within {_TIMEOUT_S} s" if is_late else str(problem)
        self._failing_since = min(self._failing_since, self.clock())
        logger.warning(
            "the issuer's keys were not read", issuer=self.issuer.url, reason=self._failure
        )

    async def _url(self, session: aiohttp.ClientSession) -> str:
        """Return where the keys are: as the settings say, or else as the issuer says.

        Raises:
            ValueError: the issuer's description is of another issuer, or names no safe place.

        """
        if self.keys_url:
            return self.keys_url
        found = await _json(session, self.issuer.url.rstrip("/") + _DISCOVERY)
        if not isinstance(found, dict) or found.get("issuer") != self.issuer.url:
            raise ValueError("its description is not that of `oidc.issuer`")
        url = str(found.get("jwks_uri"))
        check_safe_url("jwks_uri", url)
        return url


def check_safe_url(name: str, url: str) -> None:
    """Check that nobody on the way can exchange what a URL returns.

    Raises:
        ValueError: it is neither https, nor http to this machine.

    """
    try:
        parts = urlsplit(url)
        is_safe = bool(parts.hostname) and (
            parts.scheme == "https"
            or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        )
    except ValueError:
        is_safe = False
    if not is_safe:
        raise ValueError(f"{name} must be an https URL, or an http one of this machine")


async def _json(session: aiohttp.ClientSession, url: str) -> Any:
    """Return the JSON value at a URL; a redirect is an error, as nobody has checked where to.

    Raises:
        aiohttp.ClientError, OSError, TimeoutError, ValueError: there is none.
        RecursionError: it is nested too deeply.

    """
    async with session.get(url, allow_redirects=False) as response:
        if response.status != 200:
            raise ValueError(f"{url} has status {response.status}")
        body = bytearray()
        async for part in response.content.iter_any():
            body += part
            if len(body) > _LARGEST:
                raise ValueError(f"{url} has more than {_LARGEST} bytes")
        return msgspec.json.decode(body)


def issuer_of(settings: ServiceSettings) -> IssuerClient | None:
    """Return the issuer that a service's settings name, None if they name none.

    Raises:
        UnusableCredentials: the settings do not fit together, or a file cannot be read.

    """
    if not settings.oidc_issuer:
        return None
    if settings.authentication != "required":
        raise UnusableCredentials("oidc.issuer needs authentication=required")
    if not settings.oidc_audience:
        raise UnusableCredentials(
            "oidc.issuer needs oidc.audience: without it, a token that somebody made for another "
            "service would be valid here"
        )
    try:
        check_safe_url("oidc.issuer", settings.oidc_issuer)
        if settings.oidc_jwks_url:
            check_safe_url("oidc.jwks.url", settings.oidc_jwks_url)
        tls = ssl.create_default_context(cafile=settings.oidc_ca_file or None)
    except (OSError, ValueError) as problem:
        raise UnusableCredentials(f"oidc: {problem}") from problem
    issuer = Issuer(
        settings.oidc_issuer,
        settings.oidc_audience,
        settings.oidc_user_claim,
        settings.oidc_user_prefix,
    )
    return IssuerClient(issuer, settings.oidc_jwks_url, tls)


@asynccontextmanager
async def reading_keys(issuer: IssuerClient | None) -> AsyncIterator[None]:
    """Keep an issuer's keys up to date within the `with` statement."""
    if issuer is None:
        yield
        return
    # Without the task, a service would refuse all tokens from the issuer's next key on.
    reading = keep_running(issuer.run, "issuer-keys", pause_s=RETRY_S)
    task = asyncio.create_task(reading, name="issuer-keys")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
