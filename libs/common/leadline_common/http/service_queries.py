"""Requests that a service makes of another one to handle a request of its own caller.

The other service applies the rights of that caller, and its refusals keep their codes. What it
answers is read as the model of its route, without members that a newer release may have added.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel

from leadline_common.http.forward import Forwarder, OutgoingRequest
from leadline_common.identity import ServiceAddress

ModelT = TypeVar("ModelT", bound=BaseModel)
Send: TypeAlias = Callable[[], Awaitable[bytes]]
_JSON_BODY = ("Content-Type", "application/json")


def path_of(*segments: str | int) -> str:
    """Return a path below `/v1` whose segments may have any characters."""
    return "".join(f"/{quote(str(one), safe='')}" for one in ("v1", *segments))


async def send_once(send: Send) -> bytes:
    """Send a request once, and return the answer."""
    return await send()


@dataclass(frozen=True, slots=True)
class ServiceQueries:
    """Asks one service. `address()` returns where it is, or raises that it is not known.

    `attempt(send)` sends a request, and may send it again.
    """

    forwarder: Forwarder
    address: Callable[[], ServiceAddress]
    timeout_s: float
    attempt: Callable[[Send], Awaitable[bytes]] = send_once

    async def get(
        self, path: str, model: type[ModelT], query: Mapping[str, str | int] | None = None
    ) -> ModelT:
        """Return the answer to a GET.

        Raises:
            LeadlineError: the refusal of the service, or that it cannot be reached.

        """
        return await self._ask(OutgoingRequest("GET", _with_query(path, query)), model)

    async def change(
        self,
        method: str,
        path: str,
        model: type[ModelT],
        *,
        body: BaseModel | None = None,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ModelT:
        """Return the answer to a request that may change something.

        Raises:
            LeadlineError: the refusal of the service, or an unknown outcome.

        """
        content = b"" if body is None else body.model_dump_json().encode()
        sent = [*(headers or {}).items(), *([_JSON_BODY] if content else [])]
        return await self._ask(
            OutgoingRequest(method, _with_query(path, query), sent, content), model
        )

    async def _ask(self, request: OutgoingRequest, model: type[ModelT]) -> ModelT:
        async def send() -> bytes:
            return await self.forwarder.call(request, self.address(), timeout_s=self.timeout_s)

        content = await self.attempt(send)
        return model.model_validate_json(content, extra="ignore")


def _with_query(path: str, query: Mapping[str, str | int] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
