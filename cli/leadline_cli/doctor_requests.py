"""The requests of `leadline doctor`, which notes what it may not see instead of leaving it out."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

from leadline_client.errors import Forbidden, LeadlineError, QuotaExceeded, Unauthorized
from leadline_client.errors.decoding import error_from_body

_PATIENCE_S: Final = 10.0
"""How long to wait for a quota. More is taken for a refusal."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a service; `clock_off_s`: by how many seconds the time that it states is off.

    `is_refused`: the user may not have what was asked for, or not now.
    """

    response: httpx.Response
    clock_off_s: float
    is_refused: bool

    @property
    def ok(self) -> bool:
        """Whether the status is 200."""
        return self.response.status_code == httpx.codes.OK

    @property
    def body(self) -> Any:
        """What the body has, as JSON."""
        return self.response.json()


@dataclass(slots=True)
class DoctorRequests:
    """Asks services. `refusals` has what they refused to the user of `http`.

    A request beyond a quota is sent again, as by all clients, if the wait is not too long.
    """

    http: httpx.AsyncClient
    refusals: list[LeadlineError] = field(default_factory=list)

    @property
    def reasons(self) -> str:
        """The reasons of the refusals, one for each kind."""
        return "; ".join({error.code: error.message for error in self.refusals}.values())

    async def get(self, url: str) -> Answer | None:
        """Return the answer to a GET; None if there is none."""
        return await self._send("GET", url)

    async def rows(self, url: str, member: str) -> list[dict[str, Any]]:
        """Return a list in the body of an answer with the status 200; else an empty one."""
        answer = await self.get(url)
        found: list[dict[str, Any]] = answer.body[member] if answer and answer.ok else []
        return found

    async def find_coordinator(self, url: str) -> dict[str, Any] | None:
        """Return the coordinator that the broker at `url` names to clients, or None.

        The route keeps the name that the Consumer Coordinator design gives it.
        """
        answer = await self._send("POST", f"{url}/v1/consult")
        try:
            coordinator: dict[str, Any] | None = answer.body.get("coordinator") if answer else None
        except ValueError:
            return None
        return coordinator

    async def _send(self, method: str, url: str) -> Answer | None:
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            before = time.time()
            try:
                response = await self.http.request(method, url)
            except httpx.HTTPError:
                return None
            refusal = _refusal(response)
            off_s = _clock_off_s(response, before)
            if refusal is None:
                return Answer(response, off_s, is_refused=False)
            pause_s = refusal.retry_after_s
            is_too_long = time.monotonic() + pause_s > give_up
            if is_too_long or not isinstance(refusal, QuotaExceeded):
                self.refusals.append(refusal)
                return Answer(response, off_s, is_refused=True)
            await asyncio.sleep(pause_s)


def _refusal(response: httpx.Response) -> LeadlineError | None:
    """Return why a service does not answer this user; None if it does."""
    if response.is_success:
        return None
    try:
        body = response.json()
    except ValueError:
        body = None
    error = error_from_body(response.status_code, body, response.headers.get("retry-after"))
    return error if isinstance(error, Unauthorized | Forbidden | QuotaExceeded) else None


def _clock_off_s(response: httpx.Response, before: float) -> float:
    """Return by how many seconds an answer to a request of `before` states another time."""
    stated = response.headers.get("date")
    return abs(parsedate_to_datetime(stated).timestamp() - before) if stated else 0.0
